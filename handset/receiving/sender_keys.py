"""Sender keys of a fleet and the holders of our keys, read and changed in the transactions of its message store."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection

from handset.devices.row_sealer import RowSealer
from tidings import e2ee
from tidings.aio.lru import LRU
from tidings.client import sender_keys
from tidings.storage.database import Connection
from tidings.storage.handset import groups
from tidings.storage.handset.groups import LEAVING, GroupRow, Key
from tidings.wire.content import SenderKey
from tidings.wire.device import Deliver
from tidings.wire.groups import GONE, JOINED, DescribedGroup, GroupNotice

log = logging.getLogger(__name__)

KEYS_IN_MEMORY = 10_000  # about 300 bytes each, more when messages arrive out of order


@dataclasses.dataclass(frozen=True, slots=True)
class KeyDistribution:
    """Our sender key of a group, with the participants who lack it."""

    version: int  # version of the group's row; `mark_distributed` takes effect only while it is unchanged
    distribution: bytes  # message that hands the key over
    missing: frozenset[str]  # numbers


class SenderKeyStore:
    """Sender keys of one message store.

    Discarded with it when a transaction fails, because memory would be ahead of the disk.

    A changed key is committed together with the message that was read or encrypted.
    """

    def __init__(self, sealer: RowSealer) -> None:
        self._sealer = sealer
        self._keys: LRU[Key, e2ee.SenderKeyRecord] = LRU(KEYS_IN_MEMORY)
        # Keys of this transaction. They stay in memory until they are saved.
        self._loaded: dict[Key, e2ee.SenderKeyRecord] = {}
        self._changed: set[Key] = set()

    async def load(self, connection: Connection, wanted: Collection[Key]) -> None:
        """Load those of these keys that exist. They stay in memory until `save`."""
        missing: list[Key] = []
        for key in wanted:
            if key in self._loaded:
                # The key may have been replaced in this transaction.
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
                record = self._sealer.sender_key(row)
            except e2ee.E2EEError as error:
                # An unreadable key is treated as missing: it is requested, or a new one is generated.
                log.error(
                    "sender_key.unreadable",
                    extra={"number": row.number, "group": row.group_id, "sender": row.sender, "error": repr(error)},
                )
            else:
                # Our own key is treated as missing when some participants refuse its format. A new one is generated.
                if row.sender != row.number or record.is_portable:
                    self._loaded[row.number, row.group_id, row.sender] = record

    async def save(self, connection: Connection) -> None:
        """Write the changed keys. Call it last in each transaction."""
        rows = [self._sealer.sender_key_row(*key, self._loaded[key]) for key in self._changed]
        await groups.save_keys(connection, rows)
        for key, record in self._loaded.items():
            self._keys.put(key, record)
        self._loaded.clear()
        self._changed.clear()

    # Receiving.

    def read(self, number: str, frame: Deliver) -> bytes:
        """Decrypt a group message with the loaded key, if one exists. Raises `E2EEError`."""
        key = (number, frame.group, frame.sender)
        record = self._loaded.get(key)
        plaintext = sender_keys.read(record, frame.body)
        self._changed.add(key)
        return plaintext

    async def accept(self, connection: Connection, number: str, sender: str, given: SenderKey) -> None:
        """Store a key that a peer has sent. An invalid key changes nothing."""
        key = (number, given.group, sender)
        try:
            await self.load(connection, [key])
            record = sender_keys.add_key(self._loaded.get(key), given.distribution)
        except e2ee.E2EEError as error:
            log.warning(
                "sender_key.refused",
                extra={"number": number, "group": given.group, "from": sender, "error": str(error)},
            )
            return
        self._loaded[key] = record
        self._changed.add(key)

    async def apply_change(self, connection: Connection, number: str, group: str, change: GroupNotice) -> None:
        """Apply a group change that the network has announced. Applying it repeatedly has no further effect."""
        gone = change.numbers if change.change in GONE else ()
        if number in gone:
            await self.delete(connection, number, group)
            return
        known = await self._group(connection, number, group)
        if gone:
            # Former participants must not read later messages, so the key is replaced. No peer holds the new key yet.
            key = (number, group, number)
            await self.load(connection, [key])
            if key in self._loaded:
                self._loaded[key] = sender_keys.replace(self._loaded[key])
                self._changed.add(key)
            await groups.delete_holders(connection, number, group)
            for peer in gone:
                await self._delete_key(connection, number, group, peer)
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
                epoch=_unchecked_epoch(known, renewed=bool(gone)) if moved else known.epoch,
                version=known.version + moved,
            ),
        )

    async def new_identity(self, connection: Connection, number: str, peer: str) -> None:
        """Record that a peer has a new device, which holds none of our keys."""
        for group in await groups.take_holdings(connection, number, peer):
            known = await self._group(connection, number, group)
            await groups.save_group(
                connection, dataclasses.replace(known, epoch=_unchecked_epoch(known), version=known.version + 1)
            )

    # Sending.

    async def encrypt(
        self, connection: Connection, number: str, group: str, plaintext: bytes
    ) -> tuple[int, bytes] | None:
        """Return the epoch and the ciphertext of a group message; `None` when a participant lacks our key."""
        known = await self._group(connection, number, group)
        key = (number, group, number)
        await self.load(connection, [key])
        record = self._loaded.get(key)
        if known.epoch <= 0 or record is None:
            return None
        body = record.encrypt(plaintext)
        self._changed.add(key)
        return known.epoch, body

    async def prepare_distribution(self, connection: Connection, number: str, group: DescribedGroup) -> KeyDistribution:
        """Return our key of a group for distribution.

        The key is replaced if there is none, if a former participant holds it, or if a peer may hold it that was
        not recorded. That the distribution has started is committed as well, so a crash cannot lose this fact.
        """
        known = await self._group(connection, number, group.id)
        holders = await groups.list_holders(connection, number, group.id)
        participants = {participant.number for participant in group.participants}
        key = (number, group.id, number)
        await self.load(connection, [key])
        record = self._loaded.get(key)
        version = known.version
        if record is None or known.epoch == LEAVING or sender_keys.must_be_replaced(holders, participants):
            record = sender_keys.replace(record)
            self._loaded[key] = record
            self._changed.add(key)
            await groups.delete_holders(connection, number, group.id)
            holders, version = set(), version + 1
        missing = frozenset(sender_keys.members_without_key({*holders, number}, participants))
        epoch = LEAVING if missing else 0
        await groups.save_group(
            connection, dataclasses.replace(known, subject=group.subject[:100], epoch=epoch, version=version)
        )
        return KeyDistribution(version, record.distribution(), missing)

    async def mark_distributed(
        self, connection: Connection, number: str, group: str, epoch: int, preparation: KeyDistribution
    ) -> None:
        """Record that all participants who lacked the key were sent it, unless the group has changed in between."""
        known = await self._group(connection, number, group)
        if known.version != preparation.version:
            return
        await groups.add_holders(connection, number, group, preparation.missing)
        await groups.save_group(connection, dataclasses.replace(known, epoch=epoch))

    async def mark_stale(self, connection: Connection, number: str, group: str, epoch: int) -> None:
        """Record that the network has a different epoch of the group than this one."""
        known = await self._group(connection, number, group)
        if known.epoch == epoch:
            await groups.save_group(connection, dataclasses.replace(known, epoch=0))

    async def distribution(self, connection: Connection, number: str, group: str) -> bytes | None:
        """Return the message that hands over our key from the next message on; `None` when there is no key."""
        key = (number, group, number)
        await self.load(connection, [key])
        record = self._loaded.get(key)
        return record.distribution() if record is not None else None

    async def remember(self, connection: Connection, number: str, group: DescribedGroup) -> None:
        """Record that the number is in this group."""
        known = await self._group(connection, number, group.id)
        await groups.save_group(connection, dataclasses.replace(known, subject=group.subject[:100]))

    async def delete(self, connection: Connection, number: str, group: str) -> None:
        """Delete a group that the number is no longer in, with its keys."""
        for key in [key for key in self._keys if key[:2] == (number, group)]:
            self._keys.pop(key)
        for key in [key for key in self._loaded if key[:2] == (number, group)]:
            del self._loaded[key]
            self._changed.discard(key)
        await groups.delete_group(connection, number, group)

    async def _group(self, connection: Connection, number: str, group: str) -> GroupRow:
        found = await groups.find_group(connection, number, group)
        return found or GroupRow(number, group, "", 0, 0)

    async def _delete_key(self, connection: Connection, number: str, group: str, sender: str) -> None:
        key = (number, group, sender)
        self._keys.pop(key)
        self._loaded.pop(key, None)
        self._changed.discard(key)
        await groups.delete_key(connection, *key)


def _unchecked_epoch(known: GroupRow, *, renewed: bool = False) -> int:
    """Return the epoch to store for a group whose participants must be checked again.

    renewed: whether the key was replaced, so that no peer holds it
    """
    return LEAVING if known.epoch == LEAVING and not renewed else 0
