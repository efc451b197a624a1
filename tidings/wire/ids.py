"""Message ids: 27 characters that sort in order of creation."""

from __future__ import annotations

import functools
import secrets
import time
from collections.abc import Callable

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_VALUES = {digit: value for value, digit in enumerate(_DIGITS)}
_PAIRS = tuple(first + second for first in _DIGITS for second in _DIGITS)
_PREFIX = "gBEG"
_NOTICE_PREFIX = "gBEI"
_TIME_LENGTH = 8
_RANDOM_LENGTH = 15
_RANDOM_LIMIT = 62**_RANDOM_LENGTH
_RANDOM_BITS, _STEP_BITS = 88, 32
# Ids of messages of recipients: a prefix, 7 characters of Unix milliseconds, random ones (`handset.sending.outbox`).
_RECIPIENT_PREFIX = "ABGG"
_RECIPIENT_TIME_LENGTH = 7
END_OF_RECEIVED = "ABGH"  # sorts after all of them, also after those derived from ids of the Cloud API
_REPETITION = "~"  # never in our message ids


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


class MessageIds:
    """Generator of ids: `gBEG`, 8 characters of Unix milliseconds, 15 random ones (88 bits), all letters and digits.

    Each id of one generator is greater than the one before, also within a millisecond and when the clock goes back. So
    an index on ids grows at its end.
    """

    def __init__(self, clock: Callable[[], int] = _milliseconds) -> None:
        """clock: returns Unix milliseconds"""
        self._clock = clock
        self._millisecond = 0
        self._random = 0

    def new(self) -> str:
        return self._make(_PREFIX)

    def new_notice(self) -> str:
        """Return an id for a webhook callback that is about no message: as `new`, but with the prefix `gBEI`."""
        return self._make(_NOTICE_PREFIX)

    def _make(self, prefix: str) -> str:
        now = self._clock()
        if now <= self._millisecond:
            self._random += 1 + secrets.randbits(_STEP_BITS)
            if self._random >= _RANDOM_LIMIT:
                now = self._millisecond + 1
        if now > self._millisecond:
            # Over half of the range is left for increments within this millisecond.
            self._millisecond, self._random = now, secrets.randbits(_RANDOM_BITS)
        return prefix + _base62(self._millisecond, _TIME_LENGTH) + _base62(self._random, _RANDOM_LENGTH)


def is_notice(message_id: str) -> bool:
    """Return whether an id was made by `MessageIds.new_notice`."""
    return message_id.startswith(_NOTICE_PREFIX) and made_at(message_id) is not None


@functools.lru_cache(1024)
def made_at(message_id: str) -> float | None:
    """Return the Unix time, in seconds, at which one of our ids was made; None for other ids."""
    digits = message_id[len(_PREFIX) : len(_PREFIX) + _TIME_LENGTH]
    if not message_id.startswith((_PREFIX, _NOTICE_PREFIX)) or len(digits) < _TIME_LENGTH:
        return None
    milliseconds = 0
    for digit in digits:
        value = _VALUES.get(digit)
        if value is None:
            return None
        milliseconds = milliseconds * 62 + value
    return milliseconds / 1000


def bound(seconds: float) -> str:
    """Return a string that sorts before the ids of messages made at this Unix time or later, and after earlier ones.

    seconds: Unix seconds
    """
    return _PREFIX + _base62(int(seconds * 1000), _TIME_LENGTH)


def bound_of_received(seconds: float) -> str:
    """Return the same as `bound`, for ids of messages of recipients."""
    return _RECIPIENT_PREFIX + _base62(int(seconds * 1000), _RECIPIENT_TIME_LENGTH)


def repetition(message_id: str, attempt: int) -> str:
    """Return the envelope id for resending one of our messages: the network drops an envelope with the same id."""
    return f"{message_id}{_REPETITION}{attempt}"


def is_repetition(envelope_id: str) -> bool:
    """Return whether one of our envelope ids was made by `repetition`."""
    return _REPETITION in envelope_id


def message_of(envelope_id: str) -> str:
    """Return the message id in one of our envelope ids, which may be a repetition."""
    return envelope_id.partition(_REPETITION)[0]


def _base62(number: int, length: int) -> str:
    pairs = []
    for _ in range((length + 1) // 2):
        number, pair = divmod(number, 62 * 62)
        pairs.append(_PAIRS[pair])
    pairs.reverse()
    return "".join(pairs)[-length:]
