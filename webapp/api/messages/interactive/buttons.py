"""Message with up to three reply buttons."""

from __future__ import annotations

from typing import Annotated, Literal

import pydantic

from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.messages.fields import PLAIN
from webapp.api.messages.interactive.parts import BodyText, Footer, Header
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Length

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
