"""Ids of outgoing envelopes: `ABGG` and 23 characters of [0-9A-Za-z], of which the first 7 sort by time."""

from __future__ import annotations

import secrets

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_BITS = 95  # 16 characters of base 62


def _base62(value: int, length: int) -> str:
    digits = []
    for _ in range(length):
        value, digit = divmod(value, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def make(now: float) -> str:
    """Return a new id.

    now: Unix seconds; the 7 characters of milliseconds suffice until 2081
    """
    return "ABGG" + _base62(int(now * 1000), 7) + _base62(secrets.randbits(_RANDOM_BITS), 16)


class ReceiptIds:
    """Ids of receipts: a random prefix and a counter. Only the network's detection of duplicates reads them."""

    def __init__(self) -> None:
        self._prefix = f"r{secrets.token_hex(12)}."
        self._count = 0

    def next(self) -> str:
        """Return a new id."""
        self._count += 1
        return f"{self._prefix}{self._count:x}"
