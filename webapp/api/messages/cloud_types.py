"""Message types that the Cloud API has and v1 has not, or has with lower limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import pydantic

from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.messages.contacts import Card
from webapp.api.messages.fields import PLAIN, Sound
from webapp.api.messages.interactive.cloud_types import CloudInteractive
from webapp.api.messages.schemas import (
    MODELS,
    Addressed,
    AudioMessage,
    ContactsMessage,
    HsmMessage,
    InteractiveMessage,
)
from webapp.http.bodies import Body, refusal
from webapp.http.constraints import Length

MAX_CONTACTS = 257
MAX_EMOJI = 64  # characters; an emoji with modifiers has several


class SentReaction(Body):
    """Reaction to a message. An empty emoji removes it."""

    message_id: Annotated[str, Length(64), PLAIN]
    emoji: Annotated[str, Length(MAX_EMOJI, least=0)]


class ReactionMessage(Addressed):
    kind: ClassVar[str] = "reaction"
    type: Literal["reaction"]
    reaction: SentReaction


class SoundOrVoice(Sound):
    """A sound. `voice` requests its display as a voice message."""

    voice: bool | None = None


class VoicedAudioMessage(AudioMessage):
    audio: SoundOrVoice


class CloudInteractiveMessage(InteractiveMessage):
    interactive: CloudInteractive  # type: ignore[assignment]


def _require_few(cards: list[Card]) -> list[Card]:
    if len(cards) > MAX_CONTACTS:
        raise refusal(
            PARAMETER_INVALID, "has {count} contacts, the limit is {most}", count=len(cards), most=MAX_CONTACTS
        )
    return cards


class LimitedContactsMessage(ContactsMessage):
    contacts: Annotated[list[Card], pydantic.Field(min_length=1), pydantic.AfterValidator(_require_few)]


CLOUD_MODELS: Mapping[str, type[Addressed]] = {
    **{kind: model for kind, model in MODELS.items() if model is not HsmMessage},
    **{
        model.kind: model
        for model in (ReactionMessage, VoicedAudioMessage, CloudInteractiveMessage, LimitedContactsMessage)
    },
}
