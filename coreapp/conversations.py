"""Conversation that a message's statuses name. It is computed from the message alone; nothing is stored.

Each conversation lasts 24 hours and follows the previous one without a gap. It starts at a second of the day that is
derived from the recipient. So every status of a message names the same conversation, in every process and after any
crash. Each category of messages to a recipient has its own conversations.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import zlib

DAY = 86_400  # seconds

BUSINESS = "business_initiated"
USER = "user_initiated"
SERVICE = "service"
UTILITY = "utility"
TEMPLATES = frozenset({"template", "hsm"})


class ConversationNames(enum.Enum):
    """Scheme for naming conversations: by the category of their template, or by their initiator as before mid-2023."""

    CATEGORY = "category"
    INITIATOR = "initiator"


@dataclasses.dataclass(frozen=True, slots=True)
class Conversation:
    """Conversation as the webhook reports it."""

    id: str
    expires_at: int  # Unix seconds
    origin: str  # origin as in the webhook; also the category of the price


def origin_of(kind: str, category: str, names: ConversationNames) -> str:
    """Return the origin as the webhook reports it.

    kind: type of the message
    category: category of its template, empty where it is not known
    """
    if names is ConversationNames.INITIATOR:
        return BUSINESS if kind in TEMPLATES else USER
    # The category of messages accepted by releases that did not store it is not known.
    return (category.lower() or UTILITY) if kind in TEMPLATES else SERVICE


def conversation_of(account: str, peer: str, origin: str, accepted_at: float) -> Conversation:
    """Return the conversation of a message.

    accepted_at: Unix seconds
    """
    offset = zlib.crc32(peer.encode()) % DAY
    start = (int(accepted_at) - offset) // DAY * DAY + offset
    name = hashlib.blake2b(f"{account} {peer} {origin} {start}".encode(), digest_size=16).hexdigest()
    return Conversation(name, start + DAY, origin)
