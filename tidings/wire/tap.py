"""Copies of requests that a Webapp gives to a listener on its machine: what both ends of that socket agree on."""

from __future__ import annotations

import msgspec

# Bytes of a body that is copied; of a longer one only its size.
MAX_BODY = 64 * 1024
# Bytes of a length before each record.
LENGTH = 4


class Copied(msgspec.Struct, array_like=True):
    """One request that was answered.

    at: Unix seconds at which it began; took: seconds; size: bytes of its body, which is empty here when it is too long.
    """

    at: float
    path: str
    status: int
    took: float
    size: int
    body: bytes


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Copied).decode


def framed(copied: Copied) -> bytes:
    """With its length before it."""
    data = _encode(copied)
    return len(data).to_bytes(LENGTH, "big") + data
