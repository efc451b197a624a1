"""Message with a button that opens a list of rows."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from tidings.wire.codes import PARAMETER_INVALID, PARAMETER_MISSING, ROW_COUNT, SECTION_COUNT
from webapp.api.messages.fields import PLAIN
from webapp.api.messages.interactive.parts import BodyText, Footer, TextHeader
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Length, Maybe

MAX_SECTIONS = 10
MAX_ROWS = 10  # in all sections


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
