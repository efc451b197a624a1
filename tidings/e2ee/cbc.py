"""AES-256-CBC with PKCS7 padding.

A receiver authenticates first. Wrong padding under a right MAC was therefore made by the sender.
"""

from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from tidings.e2ee import errors

BLOCK: Final = 16  # bytes
_PADDING: Final = tuple(bytes([length]) * length for length in range(BLOCK + 1))


def padding(length: int) -> bytes:
    """Return the padding, 1 to 16 bytes, of a plaintext of `length` bytes."""
    return _PADDING[BLOCK - length % BLOCK]


def unpad(padded: bytes) -> bytes:
    """Return the plaintext without its padding. `padded` must not be empty. Raises InvalidMessage."""
    length = padded[-1]
    if not 0 < length <= BLOCK or not padded.endswith(_PADDING[length]):
        raise errors.InvalidMessage("wrong padding under a correct MAC")
    return padded[:-length]


def encrypt(key: bytes, iv: bytes, plaintext: bytes) -> bytes:
    """Encrypt under a key of 32 bytes, which is used for one message only."""
    encryptor = Cipher(AES(key), CBC(iv)).encryptor()
    return encryptor.update(plaintext + padding(len(plaintext))) + encryptor.finalize()


def decrypt(key: bytes, iv: bytes, ciphertext: bytes) -> bytes:
    """Decrypt an authenticated ciphertext, which must be at least one block and whole blocks. Raises InvalidMessage."""
    decryptor = Cipher(AES(key), CBC(iv)).decryptor()
    return unpad(decryptor.update(ciphertext) + decryptor.finalize())
