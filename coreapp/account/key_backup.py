"""Backup of a number's private keys. It has no sessions, because a ratchet must never go back."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from coreapp.account.own_device import OwnDevice
from tidings import e2ee
from tidings.secrets import password_box
from tidings.storage.business import accounts

_PURPOSE = "tidings account keys"
_VERSION = 1

# Bounds of the network, and of our tables.
_KeyId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class WrongBackup(ValueError):
    """The data is no backup, or the password does not open it."""


class _PreKey(msgspec.Struct):
    kind: str
    key_id: _KeyId
    blob: bytes


class Keys(msgspec.Struct):
    """Keys of a device without its token. A token belongs to one registration, and a restored device registers
    again.
    """

    version: int
    number: str
    registration_id: _KeyId
    identity: Annotated[bytes, Meta(min_length=32, max_length=32)]
    prekeys: list[_PreKey]
    next_key_id: _KeyId = 0

    @classmethod
    def of(cls, device: OwnDevice) -> Keys:
        prekeys = [_PreKey(*entry) for entry in device.private_prekeys()]
        return cls(
            _VERSION, device.number, device.registration_id, device.identity.private, prekeys, device.next_key_id
        )

    def device(self, sealer: e2ee.Sealer) -> OwnDevice:
        """Return a device with these keys and without a token."""
        identity = e2ee.IdentityKeyPair.from_private(self.identity)
        device = OwnDevice(self.number, "", self.registration_id, identity=identity, sealer=sealer)
        for key in self.prekeys:
            device.add_prekey(key.kind, key.key_id, key.blob)
        device.next_key_id = self.next_key_id
        if not device.next_key_id:
            device.find_next_key_id()
        return device


def seal(keys: Keys, password: str) -> str:
    """Return the keys as text that only the password opens."""
    return password_box.seal(password, msgspec.json.encode(keys), purpose=_PURPOSE)


def open_keys(data: str, password: str) -> Keys:
    """Return the keys that were sealed. Raises `WrongBackup`."""
    try:
        keys = msgspec.json.decode(password_box.open_box(password, data, purpose=_PURPOSE), type=Keys)
    except ValueError as error:
        raise WrongBackup(str(error)) from None
    kinds = {key.kind for key in keys.prekeys}
    if keys.version != _VERSION or not {accounts.SIGNED, accounts.KYBER} <= kinds:
        raise WrongBackup("it was created by a later version")
    return keys
