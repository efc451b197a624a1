"""The number's own private pre-keys in one shard: those in memory, and those of other shards from the database."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from coreapp.account.own_device import OwnDevice
from tidings import e2ee
from tidings.storage.business import accounts
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database
from tidings.wire import device
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)


async def delete_used(database: Database, own: OwnDevice) -> None:
    """Drop one-time pre-keys from memory that another shard has used: their rows are gone."""
    for kind in (accounts.ONE_TIME, accounts.KYBER_ONE_TIME):
        kept = own.one_time_of(kind)
        # Copied before the query. A pre-key that is made during the query has its row before it is in memory.
        known = set(kept)
        left = await database.query(functools.partial(accounts.list_one_time_ids, account=own.number, kind=kind))
        for key_id in known.difference(left):
            kept.pop(key_id, None)


class PreKeyPool:
    """Pre-keys of the number, shared by all shards. The first shard creates them, and any shard may receive a message
    that names one.
    """

    def __init__(self, database: Database, own: OwnDevice, lease: Lease) -> None:
        self._database = database
        self._own = own
        # The owner of the first shard has all lasting pre-keys in memory, in the order in which they were made.
        self._kinds = {accounts.ONE_TIME, accounts.KYBER_ONE_TIME}
        if not lease.is_first:
            self._kinds |= {accounts.SIGNED, accounts.KYBER}

    async def load(self, deliveries: Sequence[Deliver]) -> None:
        """Load the private keys that these deliveries name, as far as they exist."""
        wanted: set[tuple[str, int]] = set()
        for delivery in deliveries:
            if delivery.kind == device.PREKEY:
                wanted |= self._missing(delivery.body)
        if not wanted:
            return
        account = self._own.number
        rows = await self._database.query(lambda connection: accounts.list_prekeys_by_id(connection, account, wanted))
        for row in rows:
            try:
                opened = self._own.sealer.open(row.sealed, (account, "", row.kind, row.key_id))
            except e2ee.CorruptState:
                # Treated like a used key.
                log.exception("prekey.corrupt", extra={"number": account, "kind": row.kind, "key_id": row.key_id})
            else:
                self._own.add_prekey(row.kind, row.key_id, opened)

    def _missing(self, body: bytes) -> set[tuple[str, int]]:
        """Return kind and id of the keys that a first message names and that are not in memory."""
        try:
            first = e2ee.PreKeySignalMessage.parse(body)
        except e2ee.E2EEError:
            # The error is reported when the message is read.
            return set()
        own = self._own
        return {
            (kind, key_id)
            for kind, key_id, known in (
                (accounts.SIGNED, first.signed_prekey_id, own.signed_prekeys),
                (accounts.ONE_TIME, first.prekey_id, own.prekeys),
                (accounts.KYBER, first.kyber_prekey_id, own.kyber_prekeys.keys() | own.kyber_one_time.keys()),
                (accounts.KYBER_ONE_TIME, first.kyber_prekey_id, own.kyber_prekeys.keys() | own.kyber_one_time.keys()),
            )
            if key_id is not None and key_id not in known and kind in self._kinds
        }
