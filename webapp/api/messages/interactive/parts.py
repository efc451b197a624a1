"""Header, body and footer of interactive messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic

from tidings.wire.codes import HEADER_STRUCTURE, PARAMETER_MISSING
from webapp.api.messages import flat_media
from webapp.api.messages.fields import Document, Picture, absent_without
from webapp.api.messages.flat_media import DocumentBesideType, ImageBesideType, VideoBesideType, is_flat
from webapp.http.bodies import TAG, Body, refusal
from webapp.http.constraints import Length, Maybe, needs

MAX_HEADER = 60
MAX_BODY = 1024
MAX_FOOTER = 60


class BodyText(Body):
    text: Annotated[str, Length(MAX_BODY)]


class FooterText(Body):
    text: Annotated[str, Length(MAX_FOOTER)]


Footer = Annotated[FooterText | None, *absent_without("text")]


class NamedHeader(Body):
    """A header: text, or a file under the name of its type."""

    model_config = pydantic.ConfigDict(
        json_schema_extra=needs("type", {kind: [kind] for kind in ("text", "image", "video", "document")})
    )

    type: Literal["text", "image", "video", "document"]
    text: Maybe[Annotated[str, Length(MAX_HEADER)]] = None
    image: Picture | None = None
    video: Picture | None = None
    document: Document | None = None

    @pydantic.model_validator(mode="after")
    def _has_its_content(self) -> NamedHeader:
        if getattr(self, self.type) is None:
            raise refusal(PARAMETER_MISSING, "{kind} is missing, which type {kind} needs", kind=self.type)
        return self


def _image(flat: ImageBesideType) -> NamedHeader:
    return NamedHeader(type="image", image=flat_media.picture(flat))


def _video(flat: VideoBesideType) -> NamedHeader:
    return NamedHeader(type="video", video=flat_media.picture(flat))


def _document(flat: DocumentBesideType) -> NamedHeader:
    return NamedHeader(type="document", document=flat_media.document(flat))


def _tag(value: Any) -> str:
    return f"{TAG}{value['type']} beside" if is_flat(value) else f"{TAG}named"


Header = Annotated[
    Annotated[NamedHeader, pydantic.Tag(f"{TAG}named")]
    | Annotated[Annotated[ImageBesideType, pydantic.AfterValidator(_image)], pydantic.Tag(f"{TAG}image beside")]
    | Annotated[Annotated[VideoBesideType, pydantic.AfterValidator(_video)], pydantic.Tag(f"{TAG}video beside")]
    | Annotated[
        Annotated[DocumentBesideType, pydantic.AfterValidator(_document)], pydantic.Tag(f"{TAG}document beside")
    ],
    pydantic.Discriminator(_tag),
]


def _is_text(header: NamedHeader) -> NamedHeader:
    if header.type != "text":
        raise refusal(HEADER_STRUCTURE, "should be of type text in a message of this type")
    return header


TextHeader = Annotated[
    Header,
    pydantic.AfterValidator(_is_text),
    pydantic.Field(json_schema_extra={"properties": {"type": {"const": "text"}}}),
]
