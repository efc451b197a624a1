"""Which conversation a message belongs to, for the statuses: computed from the message alone, nothing is kept.

The 24 hours of one conversation follow those of the one before without a gap, from a second of the day that is each
recipient's own. So every status of a message names the same conversation, in every process and after any crash. Each
category of messages to a recipient has conversations of its own.
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


class Names(enum.Enum):
    """What conversations are named after: the category of their template, or who began them, as before mid-2023."""

    CATEGORY = "category"
    INITIATOR = "initiator"


@dataclasses.dataclass(frozen=True, slots=True)
class Conversation:
    """expires_at: Unix seconds. origin: as in the webhook, also the category of its price."""

    id: str
    expires_at: int
    origin: str


def origin_of(kind: str, category: str, names: Names) -> str:
    """As it is in the webhook. kind: of the message; category: of its template, empty where that is not known."""
    if names is Names.INITIATOR:
        return BUSINESS if kind in TEMPLATES else USER
    # The category of messages from before it was kept is not known.
    return (category.lower() or UTILITY) if kind in TEMPLATES else SERVICE


def conversation_of(account: str, peer: str, origin: str, accepted_at: float) -> Conversation:
    """The conversation of a message of this origin that was accepted at this Unix time in seconds."""
    offset = zlib.crc32(peer.encode()) % DAY
    start = (int(accepted_at) - offset) // DAY * DAY + offset
    name = hashlib.blake2b(f"{account} {peer} {origin} {start}".encode(), digest_size=16).hexdigest()
    return Conversation(name, start + DAY, origin)
