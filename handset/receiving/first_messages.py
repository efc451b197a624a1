"""The first messages of sessions: each is read with the pre-keys that it names, and uses those up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from handset.devices.device import Device
from handset.devices.vault import Vault
from handset.receiving.items import Delivery
from handset.receiving.sessions import SessionBatch
from tidings import e2ee
from tidings.storage.database import Connection
from tidings.storage.handset import prekeys
from tidings.storage.handset.prekeys import KYBER_LAST, KYBER_ONE_TIME, ONE_TIME, SIGNED, PreKeyRow
from tidings.wire.device import PREKEY


class FirstMessages:
    """Reads those of one batch.

    named: the pre-keys that they name, as far as they exist. used: where those to be deleted are added.
    """

    def __init__(self, vault: Vault, named: Mapping[tuple[str, int], PreKeyRow], used: list[tuple[str, int]]) -> None:
        self._vault = vault
        self._prekeys = named
        self._used = used

    def read(
        self, device: Device, first: e2ee.PreKeySignalMessage, body: bytes, record: e2ee.SessionRecord | None
    ) -> tuple[e2ee.SessionRecord, bytes]:
        """The session that this one sets up, in the place of `record`, and what it says. Raises `e2ee.E2EEError`."""
        row = self._prekeys.get((device.number, first.signed_prekey_id))
        if row is None or row.kind != SIGNED:
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
        self._used += [(key.number, key.key_id) for key in (one_time, kyber) if key and key.kind != KYBER_LAST]
        return fresh, plaintext

    def _one_time(self, device: Device, key_id: int | None) -> PreKeyRow | None:
        row = self._prekeys.get((device.number, key_id)) if key_id is not None else None
        if row is None or row.kind != ONE_TIME or (row.number, row.key_id) in self._used:
            return None
        return row

    def _kyber(self, device: Device, key_id: int | None) -> PreKeyRow | None:
        row = self._prekeys.get((device.number, key_id)) if key_id is not None else None
        if row is None or row.kind not in (KYBER_ONE_TIME, KYBER_LAST):
            return None
        return None if (row.number, row.key_id) in self._used else row


async def load_prekeys(
    connection: Connection, deliveries: Iterable[Delivery], sessions: SessionBatch
) -> Mapping[tuple[str, int], PreKeyRow]:
    """The pre-keys, by (number, key id), that first messages among these deliveries name, if they set a session up."""
    wanted: set[tuple[str, int]] = set()
    for delivery in deliveries:
        if delivery.frame.kind != PREKEY:
            continue
        try:
            first = e2ee.PreKeySignalMessage.parse(delivery.frame.body)
        except e2ee.E2EEError:
            continue
        number = delivery.device.number
        record = sessions.get((number, delivery.frame.sender))
        if record is None or record.remote_identity != first.identity_key or record.needs_setup(first):
            named = (first.signed_prekey_id, first.prekey_id, first.kyber_prekey_id)
            wanted.update((number, key_id) for key_id in named if key_id is not None)
    if not wanted:
        return {}
    return {(row.number, row.key_id): row for row in await prekeys.list_prekeys(connection, wanted)}
