"""The first messages of sessions: each is read with the pre-keys that it names, and uses those up."""

from __future__ import annotations

from collections.abc import Mapping

from handset.devices.device import Device
from handset.devices.vault import Vault
from tidings import e2ee
from tidings.storage.handset import prekeys


class FirstMessages:
    """Those of one batch.

    prekeys: those that they name, as far as they exist; used: the ones to be deleted.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self.prekeys: Mapping[tuple[str, int], prekeys.PreKeyRow] = {}
        self.used: list[tuple[str, int]] = []

    def read(
        self, device: Device, first: e2ee.PreKeySignalMessage, body: bytes, record: e2ee.SessionRecord | None
    ) -> tuple[e2ee.SessionRecord, bytes]:
        """The session that this one sets up, in the place of `record`, and what it says. Raises `e2ee.E2EEError`."""
        row = self.prekeys.get((device.number, first.signed_prekey_id))
        if row is None or row.kind != prekeys.SIGNED:
            raise e2ee.UnknownPreKey(f"signed pre-key {first.signed_prekey_id}")
        signed = self._vault.signed(row)
        one_time, kyber = self._one_time(device, first.prekey_id), self._kyber(device, first.kyber_prekey_id)
        fresh = e2ee.SessionRecord.respond(
            record,
            device.identity,
            first,
            signed,
            self._vault.one_time(one_time) if one_time else None,
            self._vault.kyber(kyber) if kyber else None,
        )
        plaintext = fresh.decrypt(e2ee.PREKEY, body)
        self.used += [(key.number, key.key_id) for key in (one_time, kyber) if key and key.kind != prekeys.KYBER_LAST]
        return fresh, plaintext

    def _one_time(self, device: Device, key_id: int | None) -> prekeys.PreKeyRow | None:
        row = self.prekeys.get((device.number, key_id)) if key_id is not None else None
        if row is None or row.kind != prekeys.ONE_TIME or (row.number, row.key_id) in self.used:
            return None
        return row

    def _kyber(self, device: Device, key_id: int | None) -> prekeys.PreKeyRow | None:
        row = self.prekeys.get((device.number, key_id)) if key_id is not None else None
        if row is None or row.kind not in (prekeys.KYBER_ONE_TIME, prekeys.KYBER_LAST):
            return None
        return None if (row.number, row.key_id) in self.used else row
