"""Which conversation a message belongs to, for the statuses: computed from the message alone, nothing is kept.

The 24 hours of one conversation follow those of the one before without a gap, from a second of the day that is each
recipient's own. So every status of a message names the same conversation, in every process and after any crash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import zlib

DAY = 86_400  # seconds

BUSINESS = "business_initiated"
USER = "user_initiated"
TEMPLATES = frozenset({"template", "hsm"})


@dataclasses.dataclass(frozen=True, slots=True)
class Conversation:
    """expires_at: Unix seconds. origin: as in the webhook, also the category of its price."""

    id: str
    expires_at: int
    origin: str


def conversation_of(account: str, peer: str, kind: str, accepted_at: float) -> Conversation:
    """The conversation of a message of this kind that was accepted at this Unix time in seconds."""
    origin = BUSINESS if kind in TEMPLATES else USER
    offset = zlib.crc32(peer.encode()) % DAY
    start = (int(accepted_at) - offset) // DAY * DAY + offset
    name = hashlib.blake2b(f"{account} {peer} {origin} {start}".encode(), digest_size=16).hexdigest()
    return Conversation(name, start + DAY, origin)
