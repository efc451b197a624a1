"""Who an envelope is to or from: the telephone number of a device, or the id of a group."""

from __future__ import annotations

import re
import zlib
from typing import Annotated

from msgspec import Meta

MIN_DIGITS, MAX_DIGITS = 7, 15
# Into how many slots numbers fall. A program that is one number's device in several parts divides these among them.
SLOTS = 32
# How many parts there may be: each has as many slots as any other.
COUNTS = (1, 2, 4, 8, 16, 32)

# A device's number. `$` would let a line feed follow it.
Number = Annotated[str, Meta(pattern=r"^[0-9]{7,15}\Z", description="E.164 without the +")]
# A number that is named in a message, which need not be on the network.
WaId = Annotated[str, Meta(pattern=r"^[0-9]{5,20}\Z")]

_GROUP = re.compile(r"[0-9]{7,15}-[0-9]{1,12}", re.ASCII)


def is_digits(text: str, least: int, most: int) -> bool:
    """So many ASCII digits, and nothing else."""
    return least <= len(text) <= most and text.isascii() and text.isdigit()


def is_number(text: str) -> bool:
    """A device's number: E.164 without the `+`, 7 to 15 digits."""
    return is_digits(text, MIN_DIGITS, MAX_DIGITS)


def is_wa_id(text: str) -> bool:
    """What the API takes for a number, be there such a device or not: 1 to 20 digits."""
    return is_digits(text, 1, 20)


def is_group(text: str) -> bool:
    """The id of a group: the number of its creator, a hyphen, and the Unix second in which it was made."""
    return _GROUP.fullmatch(text) is not None


def names_group(address: str) -> bool:
    """Tells groups from numbers among addresses that were checked before, at a fraction of what `is_group` costs."""
    return "-" in address


def slot_of(number: str) -> int:
    """The slot that a number falls into for good: CRC-32 of its digits, modulo `SLOTS`."""
    return zlib.crc32(number.encode()) % SLOTS


def shard_of(number: str, count: int) -> int:
    """The shard, or partition, that has a number among `count` (one of `COUNTS`): its slot, modulo `count`."""
    return slot_of(number) % count
