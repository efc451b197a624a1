"""Message ids: 27 characters that sort by the time they were made."""

from __future__ import annotations

import secrets
import time

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PREFIX = "gBEG"
_TIME_LENGTH = 8
_RANDOM_LENGTH = 15


def new_message_id() -> str:
    """`gBEG`, 8 characters of Unix milliseconds, 15 random ones (89 bits); all of them letters and digits.

    The order of ids is the order of their milliseconds: an index on them grows at its end.
    """
    return (
        _PREFIX
        + _base62(time.time_ns() // 1_000_000, _TIME_LENGTH)
        + _base62(secrets.randbits(96) % 62**_RANDOM_LENGTH, _RANDOM_LENGTH)
    )


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
