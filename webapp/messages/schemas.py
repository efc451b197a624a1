"""What `/v1/messages` takes and answers."""

from __future__ import annotations

from typing import Annotated

import pydantic

from webapp.bodies import Body, refusal
from webapp.errors import MESSAGE_TOO_LONG, PARAMETER_INVALID
from webapp.openapi import Meta

MAX_TEXT = 4096  # characters


def _fits(body: str) -> str:
    if len(body) > MAX_TEXT:
        raise refusal(
            MESSAGE_TOO_LONG, "has {length} characters, the limit is {limit}", length=len(body), limit=MAX_TEXT
        )
    if not body:
        raise refusal(PARAMETER_INVALID, "should not be empty")
    return body


TextBody = Annotated[
    str,
    pydantic.AfterValidator(_fits),
    pydantic.Field(json_schema_extra={"minLength": 1, "maxLength": MAX_TEXT}, examples=["Hello"]),
]


class Text(Body):
    """The content of a text message."""

    body: TextBody


class Message(Body):
    """One message; `type` names the field that has its content.

    `to` is a phone number, with or without `+`. `preview_url` stands beside `text`, not in it.
    """

    to: str = pydantic.Field(max_length=64, examples=["15550110001"])
    type: str | None = pydantic.Field(default="text", max_length=64)
    recipient_type: str | None = pydantic.Field(default="individual", max_length=64)
    preview_url: bool | None = None
    text: Text | None = None


class MessageId(pydantic.BaseModel):
    """The id that the message's statuses carry."""

    id: str


class Recipient(pydantic.BaseModel):
    """`input` as it was sent."""

    input: str
    wa_id: str


class MessagesAnswer(pydantic.BaseModel):
    """The message is committed in the job queue. `contacts` is absent unless the `wa_id` is the number in `to`."""

    messages: list[MessageId]
    contacts: list[Recipient] | None = None
    meta: Meta
