"""Records of requests that a Webapp copies to a listener on its machine: the format of that socket."""

from __future__ import annotations

import msgspec

# Bytes. Of a longer body only the size is copied.
MAX_BODY = 64 * 1024
LENGTH = 4  # bytes of the length before each record


class CopiedRequest(msgspec.Struct, array_like=True):
    """One request that was answered."""

    at: float  # Unix seconds at which the request started
    path: str
    status: int
    took: float  # seconds
    size: int  # bytes of the request body
    body: bytes  # empty when longer than `MAX_BODY`


_encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(CopiedRequest).decode


def framed(copied: CopiedRequest) -> bytes:
    """Return one record with its length in front."""
    data = _encode(copied)
    return len(data).to_bytes(LENGTH, "big") + data
