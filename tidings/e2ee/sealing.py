"""Sealing of stored blobs: AES-256-GCM under a sub-key per session.

    sealed blob:       version 1 (0x01), key id 4, nonce 12, ciphertext, tag 16
    sub-key:           HKDF(data key, "Tidings sealing v1" ‖ account ‖ peer): one shared key with random nonces would
                       reach its 2^32 limit in days
    associated data:   version, key id, every part of the context
    wrapped data key:  version 1 (0x01), key id 4, AES key wrap (RFC 3394) 40

Each part of a context is encoded with its type and length, so no two contexts have the same encoding.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import keywrap
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tidings.e2ee import errors, kdf

Context = tuple[str | int, ...]  # such as (account, peer, device, column); the first two select the sub-key

KEY_LENGTH: Final = 32  # bytes, of master and data keys
OVERHEAD: Final = 33  # bytes that sealing adds
_VERSION: Final = 1
_HEAD: Final = struct.Struct(">BI")
_NONCE_LENGTH: Final = 12
_SUB_KEY_INFO: Final = b"Tidings sealing v1"
_DERIVED_INFO: Final = b"Tidings data key v1"
_WRAPPING_INFO: Final = b"Tidings wrapping key v1"


def generate_data_key() -> bytes:
    """Return 32 random bytes."""
    return os.urandom(KEY_LENGTH)


def wrap_data_key(master_key: bytes, key_id: int, data_key: bytes) -> bytes:
    """Return a data key wrapped for storage: 45 bytes, useless without the master key. Raises InvalidKey."""
    _check_key(data_key)
    return _head(key_id) + keywrap.aes_key_wrap(_wrapping_key(master_key, key_id), data_key)


@dataclass(frozen=True, slots=True)
class Keyring:
    """Data keys by id. The highest id seals, every id opens; rotation adds a key."""

    data_keys: Mapping[int, bytes] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.data_keys:
            raise errors.InvalidKey("a keyring requires a data key")
        for key_id, data_key in self.data_keys.items():
            _head(key_id)
            _check_key(data_key)

    @classmethod
    def from_master(cls, master_key: bytes, key_id: int) -> Self:
        """Make a keyring of one data key derived from the master key and the id: the same at every start.

        For an installation that stores no wrapped keys. Its master key cannot change without resealing everything.
        """
        _check_key(master_key)
        return cls({key_id: kdf.hkdf(kdf.ZERO_SALT, master_key, _DERIVED_INFO + _head(key_id), KEY_LENGTH)})

    @classmethod
    def unwrap(cls, master_key: bytes, wrapped: Mapping[int, bytes]) -> Self:
        """Make a keyring of the random data keys that `wrap_data_key` wrapped, by id.

        Raises CorruptState on a damaged one, a wrong id or another master key.
        """
        return cls({key_id: unwrap_data_key(master_key, key_id, blob) for key_id, blob in wrapped.items()})

    @property
    def newest(self) -> int:
        """Return the id of the key that seals."""
        return max(self.data_keys)


class Sealer:
    """Sealer of blobs. Caches the ciphers of at most `cache_size` recently used sessions."""

    def __init__(self, keyring: Keyring, *, cache_size: int = 16_384) -> None:
        self._keyring = keyring
        self._newest = keyring.newest
        # Bounded, least recently used evicted. About 400 bytes per entry.
        self._cipher = functools.lru_cache(cache_size)(self._make_cipher)
        self._associated = functools.lru_cache(cache_size)(_encode)

    def seal(self, plaintext: bytes, *, context: Context, row: str | None = None) -> bytes:
        """Return the sealed `plaintext`, `OVERHEAD` bytes longer. The context is not stored: `open` needs the same one.

        row: last part of the context, when it is used for this blob only and must not take an entry of the cache
        """
        key_id = self._newest
        head = _HEAD.pack(_VERSION, key_id)
        nonce = os.urandom(_NONCE_LENGTH)
        account, peer = context[:2]
        associated = head + self._associated(context)
        if row is not None:
            associated += _encode((row,))
        return head + nonce + self._cipher(key_id, account, peer).encrypt(nonce, plaintext, associated)

    def seal_rows(self, rows: Sequence[tuple[int, bytes]], *, context: Context) -> list[bytes]:
        """Seal many plaintexts, each with the number of its row: `open` needs the context extended by that number."""
        key_id = self._newest
        head = _HEAD.pack(_VERSION, key_id)
        account, peer = context[:2]
        encrypt, associated = self._cipher(key_id, account, peer).encrypt, head + self._associated(context)
        nonces = os.urandom(_NONCE_LENGTH * len(rows))
        sealed = []
        for position, (number, plaintext) in enumerate(rows):
            nonce = nonces[position * _NONCE_LENGTH : (position + 1) * _NONCE_LENGTH]
            sealed.append(head + nonce + encrypt(nonce, plaintext, associated + _encode_number(number)))
        return sealed

    def open(self, blob: bytes, context: Context) -> bytes:
        """Return the plaintext of a blob.

        Raises CorruptState when the blob is damaged, is of another context, or names a key that the keyring lacks.
        """
        if len(blob) < OVERHEAD:
            raise errors.CorruptState("a sealed blob is truncated")
        version, key_id = _HEAD.unpack_from(blob)
        if version != _VERSION:
            raise errors.CorruptState(f"a sealed blob of version {version}")
        if key_id not in self._keyring.data_keys:
            raise errors.UnknownSealingKey(key_id)
        account, peer = context[:2]
        try:
            return self._cipher(key_id, account, peer).decrypt(
                blob[5:17], blob[17:], blob[:5] + self._associated(context)
            )
        except InvalidTag as error:
            raise errors.CorruptState("a sealed blob does not open in this context") from error

    def _make_cipher(self, key_id: int, account: str | int, peer: str | int) -> AESGCM:
        info = _SUB_KEY_INFO + _encode((account, peer))
        return AESGCM(kdf.hkdf(kdf.ZERO_SALT, self._keyring.data_keys[key_id], info, KEY_LENGTH))


def _encode(context: Context) -> bytes:
    parts = []
    for part in context:
        kind, value = (b"s", part.encode()) if isinstance(part, str) else (b"i", b"%d" % part)
        parts.append(kind + len(value).to_bytes(4, "big") + value)
    return b"".join(parts)


def _encode_number(number: int) -> bytes:
    """Encode one integer part of a context, as `_encode` does."""
    value = b"%d" % number
    return b"i" + len(value).to_bytes(4, "big") + value


def _head(key_id: int) -> bytes:
    if not 0 <= key_id < 1 << 32:
        raise errors.InvalidKey("a key id does not fit 32 bits")
    return _HEAD.pack(_VERSION, key_id)


def _check_key(key: bytes) -> None:
    if len(key) != KEY_LENGTH:
        raise errors.InvalidKey(f"a key has {KEY_LENGTH} bytes, not {len(key)}")


def _wrapping_key(master_key: bytes, key_id: int) -> bytes:
    """Return the wrapping key of one data key id, so that a wrapped key does not open under another id."""
    _check_key(master_key)
    return kdf.hkdf(kdf.ZERO_SALT, master_key, _WRAPPING_INFO + _head(key_id), KEY_LENGTH)


def unwrap_data_key(master_key: bytes, key_id: int, blob: bytes) -> bytes:
    """Return the data key in a blob of `wrap_data_key`. Raises `CorruptState`."""
    head = _head(key_id)
    if not blob.startswith(head):
        raise errors.CorruptState("a wrapped data key with another id or version")
    try:
        return keywrap.aes_key_unwrap(_wrapping_key(master_key, key_id), blob[len(head) :])
    except (keywrap.InvalidUnwrap, ValueError) as error:
        raise errors.CorruptState("a wrapped data key does not open under this master key") from error
