"""XEdDSA signatures over Curve25519, in the form that Signal's pre-keys carry.

XEdDSA (section 2.3) negates the private key so that the Edwards point has sign bit 0. On Signal's wire the key is used
unchanged, and the sign bit of its Edwards point travels in the top bit of signature byte 63.
"""

import functools
import hashlib
import os
from typing import Final

from nacl import bindings, exceptions

from tidings.e2ee import curve, errors

SIGNATURE_LENGTH: Final = 64  # bytes
_P: Final = curve.FIELD_PRIME
_HASH_1_PREFIX: Final = b"\xfe" + b"\xff" * 31  # XEdDSA section 2.5: hash1 is prefixed by 2^256 - 1 - 1
_ZERO_32: Final = bytes(32)
_MINUS_ONE: Final = (_P - 1).to_bytes(32, "little")


def sign(private: bytes, message: bytes) -> bytes:
    """Sign `message` with a 32-byte X25519 private key; return 64 bytes, partly random."""
    clamped = bytearray(private)
    clamped[0] &= 248
    clamped[31] &= 127
    clamped[31] |= 64
    scalar = bindings.crypto_core_ed25519_scalar_reduce(bytes(clamped) + _ZERO_32)
    edwards_public: bytes = bindings.crypto_scalarmult_ed25519_base_noclamp(scalar)

    nonce_hash = hashlib.sha512(_HASH_1_PREFIX + scalar + message + os.urandom(64)).digest()
    r = bindings.crypto_core_ed25519_scalar_reduce(nonce_hash)
    big_r: bytes = bindings.crypto_scalarmult_ed25519_base_noclamp(r)
    h = bindings.crypto_core_ed25519_scalar_reduce(hashlib.sha512(big_r + edwards_public + message).digest())
    s = bytearray(bindings.crypto_core_ed25519_scalar_add(r, bindings.crypto_core_ed25519_scalar_mul(h, scalar)))
    s[31] |= edwards_public[31] & 0x80
    return big_r + bytes(s)


def check_public(public: bytes) -> None:
    """Check a public key. Raises InvalidKey unless it is 33 typed bytes that can have an Edwards point."""
    curve.check_public(public)
    if public[1:] == _MINUS_ONE:  # the map to y divides by u + 1
        raise errors.InvalidKey("u = -1 has no Edwards point")


def verify(public: bytes, message: bytes, signature: bytes) -> None:
    """Verify a signature by the owner of the 33-byte `public` key.

    Raises InvalidSignature when it is wrong, InvalidKey on a malformed key or one with u = -1.
    """
    check_public(public)
    if len(signature) != SIGNATURE_LENGTH:
        raise errors.InvalidSignature(f"a signature has {SIGNATURE_LENGTH} bytes, not {len(signature)}")
    edwards = bytearray(_edwards_y(public))
    edwards[31] |= signature[63] & 0x80
    plain = signature[:63] + bytes([signature[63] & 0x7F])
    try:
        bindings.crypto_sign_open(plain + message, bytes(edwards))
    except exceptions.BadSignatureError as error:
        raise errors.InvalidSignature("the signature is invalid") from error


@functools.lru_cache(maxsize=128)  # a bundle has two signatures of one identity
def _edwards_y(public: bytes) -> bytes:
    """Return the y-coordinate of an identity's Edwards point, 32 bytes, little-endian."""
    u = int.from_bytes(public[1:], "little")
    y = (u - 1) * pow(u + 1, -1, _P) % _P  # XEdDSA section 2.3: y = (u - 1) / (u + 1)
    return y.to_bytes(32, "little")


class IdentityKeyPair(curve.KeyPair):
    """Identity key pair: `public` is 33 typed bytes, `private` 32 raw bytes."""

    __slots__ = ()

    def sign(self, message: bytes) -> bytes:
        """Return the XEdDSA signature of `message` by this identity, 64 bytes."""
        return sign(self.private, message)
