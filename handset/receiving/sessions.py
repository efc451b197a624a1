"""Sessions of a fleet: the most recent ones in memory, all of them in the store."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from handset.devices.device import Device
from handset.devices.row_sealer import RowSealer
from handset.receiving.items import PeerKey
from tidings import e2ee
from tidings.aio.lru import LRU
from tidings.storage.database import Connection
from tidings.storage.handset import sessions
from tidings.storage.handset.sessions import SessionRow

log = logging.getLogger(__name__)

IN_MEMORY = 10_000  # about 5 kB each


class SessionBatch:
    """Sessions of one batch, changed in place."""

    def __init__(self) -> None:
        self.known: dict[PeerKey, e2ee.SessionRecord] = {}
        self.changed: dict[PeerKey, e2ee.SessionRecord] = {}
        self.dropped: set[PeerKey] = set()

    def get(self, key: PeerKey) -> e2ee.SessionRecord | None:
        return self.known.get(key)

    def put(self, key: PeerKey, record: e2ee.SessionRecord) -> None:
        """Add a new or changed session."""
        self.known[key] = self.changed[key] = record
        self.dropped.discard(key)

    def drop(self, key: PeerKey) -> None:
        """Delete a session."""
        self.known.pop(key, None)
        self.changed.pop(key, None)
        self.dropped.add(key)


class DeviceSessions:
    """Sessions of one message store. Discarded with it when a transaction fails."""

    def __init__(self, devices: Mapping[str, Device], sealer: RowSealer) -> None:
        self._devices = devices
        self._sealer = sealer
        self._latest: LRU[PeerKey, e2ee.SessionRecord] = LRU(IN_MEMORY)

    async def load(self, connection: Connection, wanted: Collection[PeerKey], batch: SessionBatch) -> None:
        """Add those of these sessions that exist to a batch."""
        missing: set[PeerKey] = set()
        for key in wanted:
            record = self._latest.get(key)
            if record is not None:
                batch.known[key] = record
            else:
                missing.add(key)
        if missing:
            for row in await sessions.list_sessions(connection, missing):
                self._open(row, batch)

    async def save(self, connection: Connection, batch: SessionBatch) -> None:
        """Write the changes of a batch."""
        await sessions.save(connection, [self._seal(*entry) for entry in batch.changed.items()])
        if batch.dropped:
            await sessions.delete(connection, batch.dropped)

    def keep(self, batch: SessionBatch) -> None:
        """Cache the sessions of a committed batch."""
        for key, record in batch.known.items():
            self._latest.put(key, record)
        for key in batch.dropped:
            self._latest.pop(key)

    def _open(self, row: SessionRow, batch: SessionBatch) -> None:
        try:
            record = self._sealer.session(self._devices[row.number], row)
        except e2ee.E2EEError as error:
            # An unreadable session is treated as missing: the next message in either direction sets up a new one.
            log.error("session.unreadable", extra={"number": row.number, "peer": row.peer, "error": repr(error)})
        else:
            batch.known[row.number, row.peer] = record

    def _seal(self, key: PeerKey, record: e2ee.SessionRecord) -> SessionRow:
        number, peer = key
        return SessionRow(
            number,
            peer,
            self._sealer.seal_half(number, peer, "sending", record.sending_half()),
            self._sealer.seal_half(number, peer, "receiving", record.receiving_half()),
        )
