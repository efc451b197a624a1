"""Sender keys of a fleet, and who has ours: read and changed within the transactions of its mailroom."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection

from handset.devices.vault import Vault
from tidings import e2ee
from tidings.client import sender_keys
from tidings.runtime.lru import LRU
from tidings.storage.database import Connection
from tidings.storage.handset import groups
from tidings.storage.handset.groups import LEAVING, GroupRow, Key
from tidings.wire.content import SenderKey
from tidings.wire.device import Deliver
from tidings.wire.groups import GONE, JOINED, DescribedGroup, GroupNotice

log = logging.getLogger(__name__)

KEYS_IN_MEMORY = 10_000  # about 300 bytes each, until messages arrive out of order


@dataclasses.dataclass(frozen=True, slots=True)
class KeyDistribution:
    """Our key of a group, and who lacks it.

    version: of what is known of the group; `mark_distributed` counts only while nothing else has changed it.
    """

    version: int
    distribution: bytes
    missing: frozenset[str]


class SenderKeyStore:
    """Belongs to one mailroom, and like it is thrown away when a transaction fails: memory would be ahead of the disk.

    A key that was changed is in the same commit as what changed it: the message that was read or written.
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._keys: LRU[Key, e2ee.SenderKeyRecord] = LRU(KEYS_IN_MEMORY)
        # Those of this transaction, so that none of them leaves memory before it is saved.
        self._loaded: dict[Key, e2ee.SenderKeyRecord] = {}
        self._changed: set[Key] = set()

    async def load(self, connection: Connection, wanted: Collection[Key]) -> None:
        """Have those of these keys that exist in memory until `save`."""
        missing: list[Key] = []
        for key in wanted:
            if key in self._loaded:
                # It may have been replaced in this transaction.
                continue
            record = self._keys.get(key)
            if record is not None:
                self._loaded[key] = record
            else:
                missing.append(key)
        if not missing:
            return
        for row in await groups.list_keys(connection, missing):
            try:
                record = self._vault.sender_key(row)
            except e2ee.E2EEError as error:
                # As if there were none: it is asked for, or a new one is made.
                log.error(
                    "sender_key.unreadable",
                    extra={"number": row.number, "group": row.group_id, "sender": row.sender, "error": repr(error)},
                )
            else:
                # One of ours that some members refuse is as if there were none: a new one is made.
                if row.sender != row.number or record.is_portable:
                    self._loaded[row.number, row.group_id, row.sender] = record

    async def save(self, connection: Connection) -> None:
        """Write what has changed; call it last in each transaction."""
        rows = [self._vault.sender_key_row(*key, self._loaded[key]) for key in self._changed]
        await groups.save_keys(connection, rows)
        for key, record in self._loaded.items():
            self._keys.put(key, record)
        self._loaded.clear()
        self._changed.clear()

    # Receiving.

    def read(self, number: str, frame: Deliver) -> bytes:
        """The plaintext of a message to a group, whose key is loaded if there is one. Raises `E2EEError`."""
        key = (number, frame.group, frame.sender)
        record = self._loaded.get(key)
        plaintext = sender_keys.read(record, frame.body)
        self._changed.add(key)
        return plaintext

    async def accept(self, connection: Connection, number: str, sender: str, given: SenderKey) -> None:
        """A peer has given its key. One that is no key changes nothing."""
        key = (number, given.group, sender)
        try:
            await self.load(connection, [key])
            record = sender_keys.take_up(self._loaded.get(key), given.distribution)
        except e2ee.E2EEError as error:
            log.warning(
                "sender_key.refused",
                extra={"number": number, "group": given.group, "from": sender, "error": str(error)},
            )
            return
        self._loaded[key] = record
        self._changed.add(key)

    async def apply_change(self, connection: Connection, number: str, group: str, change: GroupNotice) -> None:
        """The network says that a group has changed. To follow the same change twice does no harm."""
        gone = change.numbers if change.change in GONE else ()
        if number in gone:
            await self.forget(connection, number, group)
            return
        known = await self._group(connection, number, group)
        if gone:
            # Whoever is gone must not read what comes: there is another key, and nobody has it yet.
            key = (number, group, number)
            await self.load(connection, [key])
            if key in self._loaded:
                self._loaded[key] = sender_keys.replace(self._loaded[key])
                self._changed.add(key)
            await groups.delete_holders(connection, number, group)
            for peer in gone:
                await self._forget_key(connection, number, group, peer)
        elif change.change == JOINED:
            holders = await groups.list_holders(connection, number, group)
            await groups.delete_holders(connection, number, group)
            await groups.add_holders(connection, number, group, holders - set(change.numbers))
        moved = change.change in (*GONE, JOINED)
        await groups.save_group(
            connection,
            dataclasses.replace(
                known,
                subject=change.subject[:100],
                epoch=_unsure(known, renewed=bool(gone)) if moved else known.epoch,
                version=known.version + moved,
            ),
        )

    async def new_identity(self, connection: Connection, number: str, peer: str) -> None:
        """Another device has this peer's number: it has none of our keys."""
        for group in await groups.take_holdings(connection, number, peer):
            known = await self._group(connection, number, group)
            await groups.save_group(
                connection, dataclasses.replace(known, epoch=_unsure(known), version=known.version + 1)
            )

    # Sending.

    async def encrypt(
        self, connection: Connection, number: str, group: str, plaintext: bytes
    ) -> tuple[int, bytes] | None:
        """The epoch for which it is, and a message to the group; `None` when not everybody there has our key."""
        known = await self._group(connection, number, group)
        key = (number, group, number)
        await self.load(connection, [key])
        record = self._loaded.get(key)
        if known.epoch <= 0 or record is None:
            return None
        body = record.encrypt(plaintext)
        self._changed.add(key)
        return known.epoch, body

    async def prepare(self, connection: Connection, number: str, group: DescribedGroup) -> KeyDistribution:
        """Our key of a group: a new one if there is none, or if somebody has it who is gone, or may have it uncounted.

        That it leaves is in the same commit, so that no crash can forget it.
        """
        known = await self._group(connection, number, group.id)
        holders = await groups.list_holders(connection, number, group.id)
        there = {participant.number for participant in group.participants}
        key = (number, group.id, number)
        await self.load(connection, [key])
        record = self._loaded.get(key)
        version = known.version
        if record is None or known.epoch == LEAVING or sender_keys.must_be_replaced(holders, there):
            record = sender_keys.replace(record)
            self._loaded[key] = record
            self._changed.add(key)
            await groups.delete_holders(connection, number, group.id)
            holders, version = set(), version + 1
        missing = frozenset(sender_keys.lacking({*holders, number}, there))
        epoch = LEAVING if missing else 0
        await groups.save_group(
            connection, dataclasses.replace(known, subject=group.subject[:100], epoch=epoch, version=version)
        )
        return KeyDistribution(version, record.distribution(), missing)

    async def mark_distributed(
        self, connection: Connection, number: str, group: str, epoch: int, preparation: KeyDistribution
    ) -> None:
        """Everybody who lacked the key has been given it. That counts only if nothing has happened meanwhile."""
        known = await self._group(connection, number, group)
        if known.version != preparation.version:
            return
        await groups.add_holders(connection, number, group, preparation.missing)
        await groups.save_group(connection, dataclasses.replace(known, epoch=epoch))

    async def mark_stale(self, connection: Connection, number: str, group: str, epoch: int) -> None:
        """The network says that the group has another epoch than this."""
        known = await self._group(connection, number, group)
        if known.epoch == epoch:
            await groups.save_group(connection, dataclasses.replace(known, epoch=0))

    async def distribution(self, connection: Connection, number: str, group: str) -> bytes | None:
        """Our key from the next message on, `None` when there is none."""
        key = (number, group, number)
        await self.load(connection, [key])
        record = self._loaded.get(key)
        return record.distribution() if record is not None else None

    async def remember(self, connection: Connection, number: str, group: DescribedGroup) -> None:
        """The number is in this group."""
        known = await self._group(connection, number, group.id)
        await groups.save_group(connection, dataclasses.replace(known, subject=group.subject[:100]))

    async def forget(self, connection: Connection, number: str, group: str) -> None:
        """The number is in this group no more."""
        for key in [key for key in self._keys if key[:2] == (number, group)]:
            self._keys.drop(key)
        for key in [key for key in self._loaded if key[:2] == (number, group)]:
            del self._loaded[key]
            self._changed.discard(key)
        await groups.delete_group(connection, number, group)

    async def _group(self, connection: Connection, number: str, group: str) -> GroupRow:
        found = await groups.find_group(connection, number, group)
        return found or GroupRow(number, group, "", 0, 0)

    async def _forget_key(self, connection: Connection, number: str, group: str, sender: str) -> None:
        key = (number, group, sender)
        self._keys.drop(key)
        self._loaded.pop(key, None)
        self._changed.discard(key)
        await groups.delete_key(connection, *key)


def _unsure(known: GroupRow, *, renewed: bool = False) -> int:
    """The epoch of a group whose members have to be looked at again. renewed: nobody has the key that there is now."""
    return LEAVING if known.epoch == LEAVING and not renewed else 0
