"""Our own ids of messages that recipients sent through the Cloud API, derived from the Cloud API's ids."""

from __future__ import annotations

import hashlib

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_PREFIX = "ABGG"
_LENGTH = 23  # digits after the prefix, for 136 bits
_BYTES = 17


def derive(account: str, wamid: str) -> str:
    """Return the id of a message, always the same, so that a message that is posted again is recognised.

    account: number that received it
    """
    digest = hashlib.blake2b(f"{account} {wamid}".encode(), digest_size=_BYTES).digest()
    number, digits = int.from_bytes(digest, "big"), []
    for _ in range(_LENGTH):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return _PREFIX + "".join(digits)
