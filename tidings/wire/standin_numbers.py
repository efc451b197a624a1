"""Numbers that stand for users whose number the real Cloud API does not show."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from tidings.wire import addresses

DIGITS = addresses.MAX_DIGITS  # digits of each number; hardly any telephone number has as many
CANDIDATES = 4  # numbers of a user; another one than the first is used if it stands for another user


def candidates(prefix: str, user_id: str) -> Sequence[str]:
    """Return the numbers that may stand for a user, in their order: the same in every process, and for every number of
    the business.
    """
    rest = DIGITS - len(prefix)
    digests = (hashlib.sha256(f"tidings stand-in\n{user_id}\n{n}".encode()).digest() for n in range(CANDIDATES))
    return [f"{prefix}{int.from_bytes(digest[:16]) % 10**rest:0{rest}}" for digest in digests]


def is_reserved(prefix: str, number: str) -> bool:
    """Return whether a number cannot be a telephone number, because it has the prefix."""
    return number.startswith(prefix)


def may_be(prefix: str, number: str) -> bool:
    """Return whether a number may stand for a user: it has the prefix, or may have an earlier one."""
    return len(number) == DIGITS or is_reserved(prefix, number)
