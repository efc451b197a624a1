"""Data keys, wrapped under the master keys of an installation: the first master key wraps, all of them unwrap.

    wrapped data key:    version 2 (0x02), id of the master key 8, id of the data key 4, AES key wrap (RFC 3394) 40
    id of a master key:  HKDF(master key, "Tidings master key id v1"), 8 bytes

A wrapped key names its master key, so that keys can be rewrapped one by one while both master keys are known. Version
1, `sealing.wrap_data_key`, names none: every master key is tried.
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
    """Return the id of a key: 16 hexadecimal digits that reveal nothing of it."""
    return kdf.hkdf(kdf.ZERO_SALT, key, _ID_INFO, _ID_LENGTH).hex()


class MasterKeys:
    """Master keys that a process knows."""

    def __init__(self, keys: Sequence[bytes], read: Callable[[], Sequence[bytes]] | None = None) -> None:
        """Make the set.

        read: returns the current keys, which may take seconds; None when the keys never change
        """
        self._read = read
        self._set(keys)

    @property
    def current(self) -> str:
        """Return the id of the key that wraps."""
        return self.ids[0]

    @property
    def ids(self) -> Sequence[str]:
        return list(self._keys)

    def reload(self) -> None:
        """Read the keys again. Raises whatever `read` raises."""
        if self._read is not None:
            self._set(self._read())

    def wrap(self, number: int, data_key: bytes, *, under: str = "") -> bytes:
        """Return a data key wrapped for storage. Raises `UnknownMasterKey`.

        number: id of the data key
        under:  id of the master key; empty for the current one
        """
        master = under or self.current
        if master not in self._keys:
            raise errors.UnknownMasterKey(master)
        head = _VERSION + bytes.fromhex(master) + number.to_bytes(4, "big")
        return head + keywrap.aes_key_wrap(_wrapping_key(self._keys[master], head), data_key)

    def unwrap(self, number: int, wrapped: bytes) -> bytes:
        """Return the data key with the id `number`.

        Raises `UnknownMasterKey` for an unknown master key, and `CorruptState`.
        """
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
        """Return whether the data key is wrapped under the current master key."""
        return self.is_under(wrapped, self.current)

    def is_under(self, wrapped: bytes, master: str) -> bool:
        """Return whether the data key is wrapped under the master key of this id."""
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
