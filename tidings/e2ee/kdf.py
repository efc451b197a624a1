"""HMAC-SHA256 and HKDF for the short keys of the ratchet.

`hmac.digest` spends most of its 1.5 µs on fetching the algorithm. Two plain SHA-256 calls (RFC 2104 written out) take
0.9 µs, and a message needs seven to ten HMACs.
"""

from hashlib import sha256

_BLOCK = 64
_HASH = 32
_INNER_PAD = bytes(x ^ 0x36 for x in range(256))  # RFC 2104 section 2: ipad, as a translation table
_OUTER_PAD = bytes(x ^ 0x5C for x in range(256))
_INNER_REST = b"\x36" * (_BLOCK - _HASH)
_OUTER_REST = b"\x5c" * (_BLOCK - _HASH)

ZERO_SALT = bytes(_HASH)
_ZERO_INNER = sha256(b"\x36" * _BLOCK)
_ZERO_OUTER = sha256(b"\x5c" * _BLOCK)


def hmac_sha256(key: bytes, message: bytes) -> bytes:
    """Return HMAC-SHA256 under a key of exactly 32 bytes."""
    return sha256(
        key.translate(_OUTER_PAD) + _OUTER_REST + sha256(key.translate(_INNER_PAD) + _INNER_REST + message).digest()
    ).digest()


def hmac_pair(key: bytes, first: bytes, second: bytes) -> tuple[bytes, bytes]:
    """Return HMAC-SHA256 of two messages under one key of exactly 32 bytes, slightly faster than in two calls."""
    inner = key.translate(_INNER_PAD) + _INNER_REST
    outer = key.translate(_OUTER_PAD) + _OUTER_REST
    return (
        sha256(outer + sha256(inner + first).digest()).digest(),
        sha256(outer + sha256(inner + second).digest()).digest(),
    )


def extract(salt: bytes, input_key_material: bytes) -> bytes:
    """Return the pseudo-random key of RFC 5869 section 2.2. An empty salt counts as zeros."""
    if salt == ZERO_SALT or not salt:
        inner = _ZERO_INNER.copy()
        inner.update(input_key_material)
        outer = _ZERO_OUTER.copy()
        outer.update(inner.digest())
        return outer.digest()
    block = (salt if len(salt) <= _BLOCK else sha256(salt).digest()).ljust(_BLOCK, b"\x00")
    return sha256(
        block.translate(_OUTER_PAD) + sha256(block.translate(_INNER_PAD) + input_key_material).digest()
    ).digest()


def expand(pseudo_random_key: bytes, info: bytes, length: int) -> bytes:
    """Return `length` bytes (at most 255 * 32) of RFC 5869 section 2.3, from a 32-byte key."""
    inner = pseudo_random_key.translate(_INNER_PAD) + _INNER_REST
    outer = pseudo_random_key.translate(_OUTER_PAD) + _OUTER_REST
    block = output = sha256(outer + sha256(inner + info + b"\x01").digest()).digest()
    counter = 1
    while len(output) < length:
        counter += 1
        block = sha256(outer + sha256(inner + block + info + counter.to_bytes(1, "big")).digest()).digest()
        output += block
    return output[:length]


def hkdf(salt: bytes, input_key_material: bytes, info: bytes, length: int) -> bytes:
    """Return `length` bytes of RFC 5869: extract, then expand."""
    return expand(extract(salt, input_key_material), info, length)
