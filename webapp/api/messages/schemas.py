"""Request bodies and responses of `/v1/messages`: one model per type of message."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import pydantic
from pydantic.config import JsonDict

from tidings.wire.codes import MESSAGE_TOO_LONG, PARAMETER_INVALID, PARAMETER_NOT_REQUIRED
from webapp.api.messages import fields
from webapp.api.messages.contacts import Cards
from webapp.api.messages.fields import PLAIN, Picture, Sound, Unsupported, absent_without
from webapp.api.messages.hsm import Hsm
from webapp.api.messages.interactive.union import Interactive
from webapp.api.messages.location import Location
from webapp.api.messages.template import Template
from webapp.http import bodies
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Length, number_as_text
from webapp.http.errors import InvalidRequest, Problem
from webapp.http.openapi.document import Meta

# Maximum time to live, in seconds. The network's own limit is usually lower.
LONGEST = 365 * 24 * 3600

_NUMBER = r"\d{1,9}(?:[.,]\d{1,9})?"
_PATTERN = (
    rf"P(?=[0-9T])(?:({_NUMBER})Y)?(?:({_NUMBER})M)?(?:({_NUMBER})W)?(?:({_NUMBER})D)?"
    rf"(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_DURATION = re.compile(_PATTERN, re.ASCII)
_DAY = 24 * 3600
# Seconds per designator of a duration, in order. A year has 365 days and a month 30.
_SECONDS = (365 * _DAY, 30 * _DAY, 7 * _DAY, _DAY, 3600, 60, 1)


def parse(value: object) -> int | None:
    """Return whole seconds, at most `LONGEST`; `None` for an absent or empty value. Raises `refusal`."""
    if value is None or value == "" or value == {}:
        return None
    seconds: float = 0
    if isinstance(value, int) and not isinstance(value, bool):
        seconds = value
    elif isinstance(value, str) and (found := _DURATION.fullmatch(value)) is not None:
        amounts = [float(amount.replace(",", ".")) if amount else 0.0 for amount in found.groups()]
        seconds = sum(amount * unit for amount, unit in zip(amounts, _SECONDS, strict=True))
    if seconds <= 0:
        details = "should be a positive integer of seconds or an ISO 8601 duration, like P1D"
        raise refusal(PARAMETER_NOT_REQUIRED, details)
    return min(math.ceil(seconds), LONGEST)


def _describe(schema: JsonDict) -> None:
    schema.pop("type", None)
    schema["anyOf"] = [
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": r"^P(?:[1-9][0-9]{0,3}D|T[1-9][0-9]{0,8}[HMS])$"},
        {"enum": [None, "", {}]},
    ]


TimeToLive = Annotated[int | None, pydantic.BeforeValidator(parse), pydantic.Field(json_schema_extra=_describe)]


MAX_TEXT = 4096  # characters


class Text(Body):
    """Text to send. `preview_url`, here or next to `text`, sets whether links in it are previewed."""

    body: Annotated[str, Length(MAX_TEXT, over=MESSAGE_TOO_LONG), pydantic.Field(examples=["Hello"])]
    preview_url: bool | None = None


# A group's id also matches the pattern of the string.
_DESCRIBED_TO: JsonDict = {
    "anyOf": [
        {
            "type": "string",
            "maxLength": 64,
            "pattern": r"^[ .()\u00a0-]*\+?(?:[ .()\u00a0-]*[0-9]){1,36}[ .()\u00a0-]*$",
        },
        {"type": "integer", "minimum": 0, "maximum": 2**63 - 1},
    ]
}


def _describe_to(schema: JsonDict) -> None:
    for name in ("type", "maxLength"):
        del schema[name]
    schema.update(_DESCRIBED_TO)


class RepliedTo(Body):
    """The message that this one replies to, by its id. The recipient or the business may have sent it."""

    message_id: Annotated[str, Length(64), PLAIN, pydantic.Field(examples=["ABGGFlA5FpafAgo6tHcNmNjXmuSf"])]


class Addressed(Body):
    """Fields that every message has or may have.

    `to` is a phone number, with or without `+`. Only the content field that `type` names is read.
    """

    kind: ClassVar[str] = ""  # value of `type`

    to: Annotated[
        str,
        pydantic.Field(max_length=64),
        pydantic.BeforeValidator(number_as_text),
        pydantic.Field(examples=["15550110001"], json_schema_extra=_describe_to),
    ]
    recipient_type: str | None = pydantic.Field(
        default="individual", max_length=64, json_schema_extra={"enum": ["individual", "group", "", None]}
    )
    context: Annotated[RepliedTo | None, *absent_without("message_id")] = None
    ttl: TimeToLive = None
    biz_opaque_callback_data: Unsupported = None
    biz_identity_key_hash: Unsupported = None
    recipient_identity_key_hash: Unsupported = None


class TextMessage(Addressed):
    """A text message. `preview_url` next to `text` takes precedence over `preview_url` inside it."""

    kind: ClassVar[str] = "text"
    type: Literal["text"] | None = "text"
    preview_url: bool | None = None
    text: Text


class ImageMessage(Addressed):
    kind: ClassVar[str] = "image"
    type: Literal["image"]
    image: Picture


class AudioMessage(Addressed):
    kind: ClassVar[str] = "audio"
    type: Literal["audio"]
    audio: Sound


class VideoMessage(Addressed):
    kind: ClassVar[str] = "video"
    type: Literal["video"]
    video: Picture


class DocumentMessage(Addressed):
    kind: ClassVar[str] = "document"
    type: Literal["document"]
    document: fields.Document


class StickerMessage(Addressed):
    kind: ClassVar[str] = "sticker"
    type: Literal["sticker"]
    sticker: Sound


class LocationMessage(Addressed):
    kind: ClassVar[str] = "location"
    type: Literal["location"]
    location: Location


class ContactsMessage(Addressed):
    kind: ClassVar[str] = "contacts"
    type: Literal["contacts"]
    contacts: Cards


class InteractiveMessage(Addressed):
    kind: ClassVar[str] = "interactive"
    type: Literal["interactive"]
    interactive: Interactive


class TemplateMessage(Addressed):
    kind: ClassVar[str] = "template"
    type: Literal["template"]
    template: Template


class HsmMessage(Addressed):
    kind: ClassVar[str] = "hsm"
    type: Literal["hsm"]
    hsm: Hsm


AnyMessage = (
    TextMessage
    | ImageMessage
    | AudioMessage
    | VideoMessage
    | DocumentMessage
    | StickerMessage
    | LocationMessage
    | ContactsMessage
    | InteractiveMessage
    | TemplateMessage
    | HsmMessage
)

MODELS: Mapping[str, type[AnyMessage]] = {
    model.kind: model
    for model in (
        TextMessage,
        ImageMessage,
        AudioMessage,
        VideoMessage,
        DocumentMessage,
        StickerMessage,
        LocationMessage,
        ContactsMessage,
        InteractiveMessage,
        TemplateMessage,
        HsmMessage,
    )
}


class Message(pydantic.RootModel[AnyMessage]):
    """A message. `type` names the field that contains its content."""


def read(value: object) -> AnyMessage:
    """Validate a parsed body as a message of the type that it names. Raises `InvalidRequest`."""
    kind = value.get("type") if isinstance(value, dict) else None
    if kind is None:
        return bodies.check(TextMessage, value)
    model = MODELS.get(kind) if isinstance(kind, str) else None
    if model is None:
        raise InvalidRequest([*_problems(value), Problem(PARAMETER_INVALID, f"type: {_why_not(kind)}")])
    return bodies.check(model, value)


def _problems(value: object) -> list[Problem]:
    try:
        bodies.check(Addressed, value)
    except InvalidRequest as error:
        return list(error.problems)
    return []


def _why_not(kind: object) -> str:
    if not isinstance(kind, str):
        return "should be a string"
    return f"should be one of {', '.join(sorted(MODELS))}"


class Marking(Body):
    """New state of a message that a recipient sent."""

    status: Literal["read"]


class MessageId(pydantic.BaseModel):
    """Id of the message, which its statuses carry."""

    id: str = pydantic.Field(examples=["gBEG0VbZZDBzMFefXNpbOZj5qac"])


class Recipient(pydantic.BaseModel):
    """The recipient. `input` is the number as it was sent."""

    input: str = pydantic.Field(examples=["+1 555 011 0001"])
    wa_id: str = pydantic.Field(examples=["15550110001"])


class MessagesResponse(pydantic.BaseModel):
    """Response to a sent message, which is committed to the job queue.

    `contacts` is absent unless the `wa_id` is the number in `to`.
    """

    messages: list[MessageId]
    contacts: list[Recipient] | None = None
    meta: Meta
