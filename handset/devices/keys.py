"""Generation of a device's keys, and their conversion to rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from handset.devices.device import Device
from handset.devices.row_sealer import RowSealer
from tidings import e2ee
from tidings.client import keys
from tidings.client.keys import KeySet
from tidings.storage.handset import prekeys


def new_device(number: str) -> Device:
    """Create a device with a new identity. It is not registered."""
    return Device(number, keys.generate_registration_id(), e2ee.IdentityKeyPair.generate())


def make(
    device: Device, *, one_time: int, kyber_one_time: int = 0, lasting: bool, used: Collection[int] = ()
) -> KeySet:
    """Generate pre-keys, including the signed and the last-resort one if `lasting` is set.

    Advances `device.next_key_id`. Store the device's row together with the keys before uploading anything.

    used: ids of the stored keys, which are skipped
    """
    made, device.next_key_id = keys.generate(
        device.identity,
        device.next_key_id,
        one_time=one_time,
        kyber_one_time=kyber_one_time,
        lasting=lasting,
        used=used,
    )
    return made


def rows(sealer: RowSealer, number: str, made: KeySet, now: int) -> list[prekeys.HandsetPreKeyRow]:
    """Return rows with the sealed private parts.

    now: time of creation, Unix milliseconds
    """
    sealed = sealer.prekey_rows(number, prekeys.ONE_TIME, made.one_time)
    sealed += sealer.prekey_rows(number, prekeys.KYBER_ONE_TIME, made.kyber_one_time)
    if made.signed is not None:
        sealed += sealer.prekey_rows(number, prekeys.SIGNED, [made.signed])
    if made.kyber_last is not None:
        sealed += sealer.prekey_rows(number, prekeys.KYBER_LAST, [made.kyber_last])
    return [dataclasses.replace(row, created_at=now) for row in sealed]
