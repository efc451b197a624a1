"""Addresses of envelopes: the telephone number of a device, or the id of a group."""

from __future__ import annotations

import re
import zlib
from typing import Annotated

from msgspec import Meta

MIN_DIGITS, MAX_DIGITS = 7, 15
# Hash slots of numbers. A program that logs in one number's device in several partitions divides them among them.
HASH_SLOTS = 32
# Possible numbers of partitions: divisors of HASH_SLOTS, so that each partition has equally many of them.
COUNTS = (1, 2, 4, 8, 16, 32)

# Number of a device. `\Z` because `$` would match before a trailing line feed.
Number = Annotated[str, Meta(pattern=r"^[0-9]{7,15}\Z", description="E.164 without the +")]
# Number named in a message, which need not be on the network.
WaId = Annotated[str, Meta(pattern=r"^[0-9]{5,20}\Z")]

_GROUP = re.compile(r"[0-9]{7,15}-[0-9]{1,12}", re.ASCII)


def is_digits(text: str, least: int, most: int) -> bool:
    """Return whether the text consists of `least` to `most` ASCII digits."""
    return least <= len(text) <= most and text.isascii() and text.isdigit()


def is_number(text: str) -> bool:
    """Return whether the text is a device's number: E.164 without the `+`, 7 to 15 digits."""
    return is_digits(text, MIN_DIGITS, MAX_DIGITS)


def is_wa_id(text: str) -> bool:
    """Return whether the API accepts the text as a number, registered or not: 1 to 20 digits."""
    return is_digits(text, 1, 20)


def is_group(text: str) -> bool:
    """Return whether the text is a group id: the creator's number, a hyphen, and the Unix second of its creation."""
    return _GROUP.fullmatch(text) is not None


def names_group(address: str) -> bool:
    """Return whether a validated address is a group's, at a fraction of the cost of `is_group`."""
    return "-" in address


def hash_slot_of(number: str) -> int:
    """Return the hash slot of a number, which never changes: CRC-32 of its digits, modulo `HASH_SLOTS`."""
    return zlib.crc32(number.encode()) % HASH_SLOTS


def shard_of(number: str, count: int) -> int:
    """Return the shard, or partition, of a number among `count` (one of `COUNTS`): its hash slot modulo `count`."""
    return hash_slot_of(number) % count
