"""Attachments: files of any size, each encrypted once under its own key, which travels in the message.

    key:     AES-256 key 32, HMAC-SHA256 key 32
    blob:    IV 16, AES-256-CBC/PKCS7 ciphertext, HMAC 32 over IV and ciphertext
    digest:  SHA-256 of the whole blob; travels in the message too, so that a holder of the key cannot replace the blob

All functions take chunks of any size and use constant memory. Decryption takes two passes, and only the second returns
plaintext: a `Verifier` reads the whole blob, and only its `finalize` makes a `Decryptor`.

    verifier = Verifier(key, digest)          # pass 1
    for chunk in chunks(): verifier.update(chunk)
    decryptor = verifier.finalize()           # raises unless MAC and digest are right
    for chunk in chunks(): write(decryptor.update(chunk))
    write(decryptor.finalize())               # raises unless the bytes were the same as in pass 1

The blob reveals the plaintext's length to within 16 bytes. A key is used for one plaintext.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from typing import Final

from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from tidings.e2ee import cbc, errors

KEY_LENGTH: Final = 64  # bytes
_AES_KEY_LENGTH: Final = 32
_IV_LENGTH: Final = 16
_MAC_LENGTH: Final = 32


def generate_key() -> bytes:
    """Return 64 random bytes."""
    return os.urandom(KEY_LENGTH)


def blob_size(plaintext_size: int) -> int:
    """Return the size, in bytes, of the blob of `plaintext_size` bytes."""
    return _IV_LENGTH + plaintext_size + len(cbc.padding(plaintext_size)) + _MAC_LENGTH


def encrypt(key: bytes, plaintext: bytes) -> tuple[bytes, bytes]:
    """Return (blob, digest) of a small plaintext. Raises InvalidKey."""
    encryptor = Encryptor(key)
    blob = encryptor.update(plaintext) + encryptor.finalize()
    return blob, encryptor.digest


def decrypt(key: bytes, digest: bytes, blob: bytes) -> bytes:
    """Return the plaintext of a small blob.

    Raises InvalidKey; InvalidMessage when the blob does not match key and digest.
    """
    verifier = Verifier(key, digest)
    verifier.update(blob)
    decryptor = verifier.finalize()
    return decryptor.update(blob) + decryptor.finalize()


class Encryptor:
    """Encryption of one plaintext into a blob, in chunks."""

    __slots__ = ("_cipher", "_hash", "_mac", "_prefix", "_written", "digest", "size")

    digest: bytes  # 32 bytes; set by `finalize`
    size: int  # size of the blob in bytes; set by `finalize`

    def __init__(self, key: bytes) -> None:
        """Start a blob. Raises InvalidKey unless the key has 64 bytes."""
        aes_key, mac_key = _split(key)
        self._prefix = os.urandom(_IV_LENGTH)  # not yet written
        self._cipher: CipherContext = Cipher(AES(aes_key), CBC(self._prefix)).encryptor()
        self._mac = hmac.new(mac_key, digestmod="sha256")
        self._hash = hashlib.sha256()
        self._written = 0  # bytes of plaintext

    def update(self, plaintext: bytes) -> bytes:
        """Return the next bytes of the blob: at most 16 more than `plaintext` has, possibly none."""
        self._written += len(plaintext)
        output = self._prefix + self._cipher.update(plaintext)
        self._prefix = b""
        self._mac.update(output)
        self._hash.update(output)
        return output

    def finalize(self) -> bytes:
        """Return the last bytes of the blob: ciphertext, padding and MAC."""
        output = self.update(cbc.padding(self._written))
        self._cipher.finalize()  # any further use raises
        mac = self._mac.digest()
        self._hash.update(mac)
        self.digest = self._hash.digest()
        self.size = _IV_LENGTH + self._written + _MAC_LENGTH
        return output + mac


class Verifier:
    """First pass of decryption: reads the blob, and returns nothing until all of it has authenticated."""

    __slots__ = ("_digest", "_hash", "_key", "_mac", "_size", "_tail")

    def __init__(self, key: bytes, digest: bytes) -> None:
        """Start the pass. Raises InvalidKey unless the key has 64 bytes."""
        _, mac_key = _split(key)
        self._key = key
        self._digest = digest
        self._mac = hmac.new(mac_key, digestmod="sha256")
        self._hash = hashlib.sha256()
        self._tail = b""  # the last bytes, which may be the MAC
        self._size = 0

    def update(self, chunk: bytes) -> None:
        self._size += len(chunk)
        self._hash.update(chunk)
        if len(chunk) < _MAC_LENGTH:
            chunk = self._tail + chunk
        else:
            self._mac.update(self._tail)
        self._mac.update(memoryview(chunk)[:-_MAC_LENGTH])
        self._tail = chunk[-_MAC_LENGTH:]

    def finalize(self) -> Decryptor:
        """Return the decryptor for the second pass over the same bytes.

        Raises InvalidMessage when MAC, digest or length is wrong: the blob is damaged, truncated, or another one.
        """
        ciphertext = self._size - _IV_LENGTH - _MAC_LENGTH
        if ciphertext < cbc.BLOCK or ciphertext % cbc.BLOCK:
            raise errors.InvalidMessage(f"an attachment of {self._size} bytes")
        if not hmac.compare_digest(self._tail, self._mac.digest()):
            raise errors.InvalidMessage("the attachment does not authenticate")
        if not hmac.compare_digest(self._digest, self._hash.digest()):
            raise errors.InvalidMessage("the attachment does not have this digest")
        return Decryptor(self._key, self._digest, ciphertext)


class Decryptor:
    """Second pass of decryption: reads the blob again, and returns plaintext. Made by `Verifier.finalize`."""

    __slots__ = ("_aes_key", "_cipher", "_digest", "_hash", "_iv", "_last", "_left")

    def __init__(self, key: bytes, digest: bytes, ciphertext: int) -> None:
        self._aes_key, _ = _split(key)
        self._digest = digest
        self._left = ciphertext  # bytes of ciphertext to come
        self._hash = hashlib.sha256()
        self._iv = b""
        self._cipher: CipherContext | None = None  # None until the IV is complete
        self._last = b""  # the last 16 bytes of plaintext, including padding

    def update(self, chunk: bytes) -> bytes:
        """Return the next bytes of the plaintext, which are the verified ones if the blob has not changed since.

        Where others may write to the blob between the passes, only `finalize` proves that.
        """
        self._hash.update(chunk)
        if self._cipher is None:
            missing = _IV_LENGTH - len(self._iv)
            self._iv += chunk[:missing]
            chunk = chunk[missing:]
            if len(self._iv) < _IV_LENGTH:
                return b""
            self._cipher = Cipher(AES(self._aes_key), CBC(self._iv)).decryptor()
        chunk = chunk[: self._left]
        plaintext = self._cipher.update(chunk)
        self._left -= len(chunk)
        if self._left or not chunk:
            return plaintext
        self._last = plaintext[-cbc.BLOCK :]
        return plaintext[: -cbc.BLOCK]

    def finalize(self) -> bytes:
        """Return the last bytes of the plaintext.

        Raises InvalidMessage when the blob has changed since it was verified.
        """
        if not hmac.compare_digest(self._digest, self._hash.digest()):
            raise errors.InvalidMessage("the attachment has changed since it was verified")
        return cbc.unpad(self._last)


def _split(key: bytes) -> tuple[bytes, bytes]:
    if len(key) != KEY_LENGTH:
        raise errors.InvalidKey(f"an attachment key has {KEY_LENGTH} bytes, not {len(key)}")
    return key[:_AES_KEY_LENGTH], key[_AES_KEY_LENGTH:]
