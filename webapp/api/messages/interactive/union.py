"""Union of all interactive contents, distinguished by `type`."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic
from pydantic.json_schema import SkipJsonSchema

from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING, ROW_COUNT, SECTION_COUNT
from webapp.api.messages.fields import PLAIN
from webapp.api.messages.interactive.flows import FlowMessage, LocationRequestMessage
from webapp.api.messages.interactive.parts import BodyText, Footer, Header, TextHeader
from webapp.api.messages.interactive.products import CatalogMessage, ProductListMessage, ProductMessage
from webapp.http.bodies import TAG, Body, refusal, tag_of, type_of
from webapp.http.constraints import Length, Maybe

MAX_SECTIONS = 10
MAX_ROWS = 10  # rows in all sections together


class Row(Body):
    """A row. The webhook returns its `id`."""

    id: Annotated[str, Length(200), PLAIN]
    title: Annotated[str, Length(24)]
    description: Maybe[Annotated[str, Length(72)]] = None


class Section(Body):
    """A section. The title is required when there is more than one section."""

    title: Maybe[Annotated[str, Length(24)]] = None
    rows: Annotated[list[Row], pydantic.Field(json_schema_extra={"minItems": 1, "maxItems": MAX_ROWS})]


class ListAction(Body):
    """The list: at most 10 rows in all sections together."""

    button: Annotated[str, Length(20)]
    sections: Annotated[list[Section], pydantic.Field(json_schema_extra={"minItems": 1, "maxItems": MAX_SECTIONS})]

    @pydantic.model_validator(mode="after")
    def _counts(self) -> ListAction:
        if not 1 <= len(self.sections) <= MAX_SECTIONS:
            raise refusal(
                SECTION_COUNT,
                "sections has {count} entries, 1 to {most} are allowed",
                count=len(self.sections),
                most=MAX_SECTIONS,
            )
        for index, section in enumerate(self.sections):
            if not section.rows:
                raise refusal(ROW_COUNT, "sections[{index}].rows has no row", index=index)
            if len(self.sections) > 1 and not section.title:
                raise refusal(
                    PARAMETER_MISSING, "sections[{index}].title is missing, which several sections need", index=index
                )
        rows = [row.id for section in self.sections for row in section.rows]
        if len(rows) > MAX_ROWS:
            raise refusal(
                ROW_COUNT, "sections has {count} rows in all, the limit is {most}", count=len(rows), most=MAX_ROWS
            )
        if len(set(rows)) < len(rows):
            raise refusal(PARAMETER_INVALID, "sections has two rows with the same id")
        return self


class ListMessage(Body):
    type: Literal["list"]
    header: TextHeader | None = None
    body: BodyText
    footer: Footer = None
    action: ListAction


MAX_BUTTONS = 3


class Reply(Body):
    """A reply. The webhook returns its `id`."""

    id: Annotated[str, Length(256), PLAIN]
    title: Annotated[str, Length(20)]


class Button(Body):
    type: Literal["reply"]
    reply: Reply


class ButtonAction(Body):
    buttons: Annotated[list[Button], pydantic.Field(json_schema_extra={"minItems": 1, "maxItems": MAX_BUTTONS})]

    @pydantic.model_validator(mode="after")
    def _counts(self) -> ButtonAction:
        if not 1 <= len(self.buttons) <= MAX_BUTTONS:
            raise refusal(
                PARAMETER_INVALID,
                "buttons has {count} entries, 1 to {most} are allowed",
                count=len(self.buttons),
                most=MAX_BUTTONS,
            )
        for name in ("id", "title"):
            if len({getattr(button.reply, name) for button in self.buttons}) < len(self.buttons):
                raise refusal(PARAMETER_INVALID, "buttons has two with the same {name}", name=name)
        return self


class ButtonMessage(Body):
    type: Literal["button"]
    header: Header | None = None
    body: BodyText
    footer: Footer = None
    action: ButtonAction


Type = Literal["list", "button", "product", "product_list", "catalog_message", "flow", "location_request_message"]
_TYPES = frozenset(Type.__args__)  # type: ignore[attr-defined]


class UnknownType(Body):
    """Model for a missing or unknown type. Its validation always fails, with an error that names the known types."""

    type: Type


Interactive = Annotated[
    Annotated[ListMessage, pydantic.Tag(f"{TAG}list")]
    | Annotated[ButtonMessage, pydantic.Tag(f"{TAG}button")]
    | Annotated[ProductMessage, pydantic.Tag(f"{TAG}product")]
    | Annotated[ProductListMessage, pydantic.Tag(f"{TAG}product_list")]
    | Annotated[CatalogMessage, pydantic.Tag(f"{TAG}catalog_message")]
    | Annotated[FlowMessage, pydantic.Tag(f"{TAG}flow")]
    | Annotated[LocationRequestMessage, pydantic.Tag(f"{TAG}location_request_message")]
    | Annotated[SkipJsonSchema[UnknownType], pydantic.Tag(f"{TAG}none")],
    pydantic.Discriminator(lambda value: tag_of(type_of(value), _TYPES)),
]
