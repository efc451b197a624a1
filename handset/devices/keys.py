"""Making the keys of a recipient: what it uploads, and what it keeps."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Collection, Sequence

from handset.devices.device import Device
from handset.devices.vault import Vault
from tidings import e2ee
from tidings.storage.handset import prekeys


@dataclasses.dataclass(frozen=True, slots=True)
class KeySet:
    """Keys of one device that the network does not have yet. `signed` and `kyber_last` only where they are replaced."""

    signed: e2ee.SignedPreKey | None
    kyber_last: e2ee.KyberPreKey | None
    one_time: Sequence[e2ee.PreKey]
    kyber_one_time: Sequence[e2ee.KyberPreKey]


def new_device(number: str) -> Device:
    """A device with a fresh identity, not registered."""
    return Device(number, secrets.randbelow(16380) + 1, e2ee.IdentityKeyPair.generate(), None, 1)


def make(device: Device, *, one_time: int, kyber_one_time: int = 0, whole: bool, used: Collection[int] = ()) -> KeySet:
    """Fresh pre-keys, about 60 µs for each one-time key and 500 µs for a `whole` set, with signed and last-resort key.

    used: the ids of the keys that are kept, which are passed over; ids go round at 24 bits. Moves `device.next_key_id`:
    store the device's row together with the keys before anything is uploaded.
    """
    chosen = e2ee.free_key_ids(device.next_key_id, one_time + kyber_one_time + (2 if whole else 0), used)
    ids = iter(chosen)
    signed = e2ee.SignedPreKey.generate(device.identity, next(ids)) if whole else None
    kyber_last = e2ee.KyberPreKey.generate(device.identity, next(ids)) if whole else None
    keys = KeySet(
        signed,
        kyber_last,
        [e2ee.PreKey.generate(next(ids)) for _ in range(one_time)],
        [e2ee.KyberPreKey.generate(device.identity, next(ids)) for _ in range(kyber_one_time)],
    )
    if chosen:
        device.next_key_id = chosen[-1] + 1
    return keys


def rows(vault: Vault, number: str, keys: KeySet, now: int) -> list[prekeys.PreKeyRow]:
    """The private parts, sealed, as made at `now` (Unix milliseconds)."""
    made = vault.prekey_rows(number, prekeys.ONE_TIME, keys.one_time)
    made += vault.prekey_rows(number, prekeys.KYBER_ONE_TIME, keys.kyber_one_time)
    if keys.signed is not None:
        made += vault.prekey_rows(number, prekeys.SIGNED, [keys.signed])
    if keys.kyber_last is not None:
        made += vault.prekey_rows(number, prekeys.KYBER_LAST, [keys.kyber_last])
    return [dataclasses.replace(row, created_at=now) for row in made]
