"""The sessions of a fleet at work: in memory as far as that reaches, in the store beyond it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from handset.devices.device import Device
from handset.devices.vault import Vault
from handset.receiving.incoming import Digest, PeerKey
from tidings import e2ee
from tidings.runtime.lru import LRU
from tidings.storage.database import Connection
from tidings.storage.handset import sessions

log = logging.getLogger(__name__)

IN_MEMORY = 10_000  # about 5 kB each


class Sessions:
    """Belongs to one mailroom, and is thrown away with it when a transaction fails."""

    def __init__(self, devices: Mapping[str, Device], vault: Vault) -> None:
        self._devices = devices
        self._vault = vault
        self._known: LRU[PeerKey, e2ee.SessionRecord] = LRU(IN_MEMORY)

    async def load(self, connection: Connection, wanted: Iterable[PeerKey], digest: Digest) -> None:
        """Give the digest those of these sessions that exist."""
        missing: set[PeerKey] = set()
        for key in wanted:
            record = self._known.get(key)
            if record is not None:
                digest.sessions[key] = record
            else:
                missing.add(key)
        if missing:
            for row in await sessions.list_sessions(connection, missing):
                self._open(row, digest)

    async def save(self, connection: Connection, digest: Digest) -> None:
        """Write what the digest has changed."""
        await sessions.save(connection, [self._seal(*entry) for entry in digest.changed.items()])
        if digest.dropped:
            await sessions.delete(connection, digest.dropped)

    def keep(self, digest: Digest) -> None:
        """The transaction is committed."""
        for key, record in digest.sessions.items():
            self._known.put(key, record)
        for key in digest.dropped:
            self._known.drop(key)

    def _open(self, row: sessions.SessionRow, digest: Digest) -> None:
        try:
            record = self._vault.session(self._devices[row.number], row)
        except e2ee.E2EEError as error:
            # As if there were none: the peer's next message, or ours, sets up a new one.
            log.error("session.unreadable", extra={"number": row.number, "peer": row.peer, "error": repr(error)})
        else:
            digest.sessions[(row.number, row.peer)] = record

    def _seal(self, key: PeerKey, record: e2ee.SessionRecord) -> sessions.SessionRow:
        number, peer = key
        return sessions.SessionRow(
            number,
            peer,
            self._vault.seal_half(number, peer, "sending", record.sending_half()),
            self._vault.seal_half(number, peer, "receiving", record.receiving_half()),
        )
