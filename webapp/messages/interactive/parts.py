"""Header, body and footer of interactive messages."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from webapp.bodies import Body, refusal
from webapp.errors import HEADER_STRUCTURE, PARAMETER_MISSING
from webapp.exact import Maybe, needs
from webapp.messages.fields import Document, Length, Picture, absent_without

MAX_HEADER = 60
MAX_BODY = 1024
MAX_FOOTER = 60


class BodyText(Body):
    text: Annotated[str, Length(MAX_BODY)]


class FooterText(Body):
    text: Annotated[str, Length(MAX_FOOTER)]


Footer = Annotated[FooterText | None, *absent_without("text")]


class Header(Body):
    """Text, or a file under the name of its type."""

    model_config = pydantic.ConfigDict(
        json_schema_extra=needs("type", {kind: [kind] for kind in ("text", "image", "video", "document")})
    )

    type: Literal["text", "image", "video", "document"]
    text: Maybe[Annotated[str, Length(MAX_HEADER)]] = None
    image: Picture | None = None
    video: Picture | None = None
    document: Document | None = None

    @pydantic.model_validator(mode="after")
    def _has_its_content(self) -> Header:
        if getattr(self, self.type) is None:
            raise refusal(PARAMETER_MISSING, "{kind} is missing, which type {kind} needs", kind=self.type)
        return self


def _is_text(header: Header) -> Header:
    if header.type != "text":
        raise refusal(HEADER_STRUCTURE, "should be of type text in a message of this type")
    return header


TextHeader = Annotated[
    Header,
    pydantic.AfterValidator(_is_text),
    pydantic.Field(json_schema_extra={"properties": {"type": {"const": "text"}}}),
]
