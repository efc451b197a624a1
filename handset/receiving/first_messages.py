"""Pre-keys that the first messages of sessions name. Each first message is decrypted with them and uses them up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from handset.devices.device import Device
from handset.devices.vault import Vault
from handset.receiving.items import Delivery
from handset.receiving.sessions import SessionBatch
from tidings import e2ee
from tidings.client import sessions
from tidings.client.sessions import PreKeys
from tidings.storage.database import Connection
from tidings.storage.handset import prekeys
from tidings.storage.handset.prekeys import KYBER_LAST, KYBER_ONE_TIME, ONE_TIME, SIGNED, PreKeyRow
from tidings.wire.device import PREKEY

PreKey = TypeVar("PreKey")


class FirstMessages:
    """Pre-keys for the first messages of one batch."""

    def __init__(self, vault: Vault, named: Mapping[tuple[str, int], PreKeyRow], used: list[tuple[str, int]]) -> None:
        """Create the lookup.

        named: the named pre-keys that exist, by number and key id
        used: list to which the keys to delete are added, as (number, key id)
        """
        self._vault = vault
        self._prekeys = named
        self._used = used

    def prekeys_of(self, device: Device) -> PreKeys:
        """Return the pre-keys of a device, without those that an earlier message of the batch has used."""
        number = device.number
        return PreKeys(
            functools.partial(self._find, self._vault.signed, (SIGNED,), number),
            functools.partial(self._find, self._vault.one_time, (ONE_TIME,), number),
            functools.partial(self._find, self._vault.kyber, (KYBER_ONE_TIME, KYBER_LAST), number),
        )

    def use_up(self, device: Device, first: e2ee.PreKeySignalMessage) -> None:
        """Mark the one-time keys of a first message that has set up a session as used. They set up no other session."""
        for key_id, kind in ((first.prekey_id, ONE_TIME), (first.kyber_prekey_id, KYBER_ONE_TIME)):
            row = self._prekeys.get((device.number, key_id)) if key_id is not None else None
            if row is not None and row.kind == kind:
                self._used.append((row.number, row.key_id))

    def _find(
        self, unseal: Callable[[PreKeyRow], PreKey], kinds: Collection[str], number: str, key_id: int
    ) -> PreKey | None:
        row = self._prekeys.get((number, key_id))
        if row is None or row.kind not in kinds or (number, key_id) in self._used:
            return None
        return unseal(row)


async def load_prekeys(
    connection: Connection, deliveries: Iterable[Delivery], batch: SessionBatch
) -> Mapping[tuple[str, int], PreKeyRow]:
    """Return the pre-keys that first messages among these deliveries need to set up sessions, by number and key id."""
    wanted: set[tuple[str, int]] = set()
    for delivery in deliveries:
        if delivery.frame.kind != PREKEY:
            continue
        try:
            first = e2ee.PreKeySignalMessage.parse(delivery.frame.body)
        except e2ee.E2EEError:
            continue
        number = delivery.device.number
        record = batch.get((number, delivery.frame.sender))
        if not sessions.goes_on(record, first.identity_key) or sessions.needs_setup(record, first):
            named = (first.signed_prekey_id, first.prekey_id, first.kyber_prekey_id)
            wanted.update((number, key_id) for key_id in named if key_id is not None)
    if not wanted:
        return {}
    return {(row.number, row.key_id): row for row in await prekeys.list_prekeys(connection, wanted)}
