"""Data keys, wrapped under the master keys of an installation: the first master key wraps, all of them unwrap.

    wrapped data key:    version 2 (0x02), id of the master key 8, id of the data key 4, AES key wrap (RFC 3394) 40
    id of a master key:  HKDF(master key, "Tidings master key id v1"), 8 bytes

A wrapped key says which master key it needs, so that keys can be wrapped again one after the other while both master
keys are known. Version 1, `sealing.wrap_data_key`, says nothing: every master key is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cryptography.hazmat.primitives import keywrap

from tidings.e2ee import errors, kdf, sealing

_VERSION = b"\x02"
_ID_LENGTH = 8
_ID_INFO = b"Tidings master key id v1"
_WRAPPING_INFO = b"Tidings wrapping key v2"


def key_id(key: bytes) -> str:
    """What a key is called wherever it must not be shown: 16 hexadecimal digits that say nothing of it."""
    return kdf.hkdf(kdf.ZERO_SALT, key, _ID_INFO, _ID_LENGTH).hex()


class MasterKeys:
    """The master keys that a process knows. It looks for new ones when it meets a data key that needs another."""

    def __init__(self, keys: Sequence[bytes], read: Callable[[], Sequence[bytes]] | None = None) -> None:
        """read(): the keys as they are by now; may take seconds."""
        self._read = read
        self._set(keys)

    @property
    def current(self) -> str:
        """The id of the key that wraps."""
        return self.ids[0]

    @property
    def ids(self) -> Sequence[str]:
        return list(self._keys)

    def reload(self) -> None:
        """Look whether there are others by now. Raises what `read` raises."""
        if self._read is not None:
            self._set(self._read())

    def wrap(self, number: int, data_key: bytes, *, under: str = "") -> bytes:
        """A data key of this number as it may be stored, under the current master key or another that we have.

        Raises `UnknownMasterKey`.
        """
        master = under or self.current
        if master not in self._keys:
            raise errors.UnknownMasterKey(master)
        head = _VERSION + bytes.fromhex(master) + number.to_bytes(4, "big")
        return head + keywrap.aes_key_wrap(_wrapping_key(self._keys[master], head), data_key)

    def unwrap(self, number: int, wrapped: bytes) -> bytes:
        """Raises `UnknownMasterKey` for a key that we do not have, and `CorruptState`."""
        if not wrapped.startswith(_VERSION):
            return self._unwrap_first(number, wrapped)
        head = wrapped[: 1 + _ID_LENGTH + 4]
        master = self._keys.get(head[1 : 1 + _ID_LENGTH].hex())
        if master is None:
            raise errors.UnknownMasterKey(head[1 : 1 + _ID_LENGTH].hex())
        try:
            if head[1 + _ID_LENGTH :] != number.to_bytes(4, "big"):
                raise ValueError("another number")
            return keywrap.aes_key_unwrap(_wrapping_key(master, head), wrapped[len(head) :])
        except (keywrap.InvalidUnwrap, ValueError) as error:
            raise errors.CorruptState("a wrapped data key is damaged") from error

    def needs_current(self, wrapped: bytes) -> bool:
        """Is it the current master key that opens this?"""
        return self.is_under(wrapped, self.current)

    def is_under(self, wrapped: bytes, master: str) -> bool:
        """Is it the master key of this id that opens this?"""
        return wrapped[: 1 + _ID_LENGTH] == _VERSION + bytes.fromhex(master)

    def _unwrap_first(self, number: int, wrapped: bytes) -> bytes:
        for master in self._keys.values():
            try:
                return sealing.unwrap_data_key(master, number, wrapped)
            except errors.CorruptState as error:
                failure = error
        raise failure

    def _set(self, keys: Sequence[bytes]) -> None:
        self._keys = {key_id(key): key for key in keys}


def _wrapping_key(master_key: bytes, head: bytes) -> bytes:
    return kdf.hkdf(kdf.ZERO_SALT, master_key, _WRAPPING_INFO + head, sealing.KEY_LENGTH)
