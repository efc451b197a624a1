"""Kyber-1024 as submitted in round 3, implemented on ML-KEM-1024.

ML-KEM (FIPS 203) derives the same pre-key and the same ciphertext as Kyber round 3. Only the last step differs, which
in round 3 is SHAKE256(secret ‖ SHA3-256(ciphertext), 32 bytes). On implicit rejection the two derive different
pseudo-random secrets, which are indistinguishable.
"""

import hashlib
from typing import Final

from cryptography.hazmat.primitives.asymmetric import mlkem

from tidings.e2ee import errors

KEY_TYPE: Final = 0x08  # PQXDH section 2.5: EncodeKEM(PK); ciphertexts carry it too
TYPE_PREFIX: Final = bytes([KEY_TYPE])
PUBLIC_LENGTH: Final = 1569  # bytes, type byte included
CIPHERTEXT_LENGTH: Final = 1569  # bytes, type byte included
SEED_LENGTH: Final = 64  # bytes: FIPS 203's d ‖ z, our form of a private key


def generate() -> tuple[bytes, bytes]:
    """Return a new pair: the 1,569 typed bytes of the public key, the 64-byte seed of the private key."""
    private_key = mlkem.MLKEM1024PrivateKey.generate()
    return TYPE_PREFIX + private_key.public_key().public_bytes_raw(), private_key.private_bytes_raw()


def check_public(public: bytes) -> None:
    """Check a public key. Raises InvalidKey unless it has the length and the type of a Kyber-1024 key."""
    if len(public) != PUBLIC_LENGTH or public[0] != KEY_TYPE:
        raise errors.InvalidKey("not a Kyber-1024 public key")


def encapsulate(public: bytes) -> tuple[bytes, bytes]:
    """PQKEM-ENC of PQXDH section 2.2: return (ciphertext of 1,569 typed bytes, shared secret of 32 bytes).

    Raises InvalidKey.
    """
    check_public(public)
    try:
        secret, ciphertext = mlkem.MLKEM1024PublicKey.from_public_bytes(public[1:]).encapsulate()
    except ValueError as error:
        raise errors.InvalidKey("not a Kyber-1024 public key") from error
    return TYPE_PREFIX + ciphertext, round_3(secret, ciphertext)


def decapsulate(seed: bytes, ciphertext: bytes) -> bytes:
    """PQKEM-DEC of PQXDH section 2.2: return the shared secret, 32 bytes.

    A wrong ciphertext of the right length gives a wrong secret and no error. Raises InvalidKey on a wrong length or
    type.
    """
    if len(ciphertext) != CIPHERTEXT_LENGTH or ciphertext[0] != KEY_TYPE:
        raise errors.InvalidKey("not a Kyber-1024 ciphertext")
    try:
        private_key = mlkem.MLKEM1024PrivateKey.from_seed_bytes(seed)
        secret = private_key.decapsulate(ciphertext[1:])
    except ValueError as error:
        raise errors.InvalidKey("not a Kyber-1024 private key or ciphertext") from error
    return round_3(secret, ciphertext[1:])


def round_3(secret: bytes, ciphertext: bytes) -> bytes:
    """Return the shared secret of Kyber round 3 for that of ML-KEM: bound to the ciphertext."""
    return hashlib.shake_256(secret + hashlib.sha3_256(ciphertext).digest()).digest(32)
