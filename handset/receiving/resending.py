"""Messages of ours that a peer could not decrypt: kept for a while, and sent again on another session."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence

from handset.devices.context import FleetContext
from tidings import e2ee
from tidings.client import sessions
from tidings.storage.database import Connection
from tidings.storage.handset import sent
from tidings.storage.handset.outbox import OutboxRow
from tidings.storage.handset.sent import SentRow

log = logging.getLogger(__name__)

KEPT_MS = 30 * 86_400_000  # as long as the network keeps an envelope
PRUNE_EVERY = 1_000  # messages


@dataclasses.dataclass(frozen=True, slots=True)
class Resend:
    """One message that goes out again."""

    id: str
    attempt: int
    plaintext: bytes = dataclasses.field(repr=False)

    @property
    def envelope_id(self) -> str:
        """Another id than the message's, which the network would drop as a duplicate."""
        return f"{self.id}~{self.attempt}"


class SentMessages:
    """Messages that a fleet sent. Belongs to one mailroom, and is thrown away with it when a transaction fails.

    Those that wait for a session are known in memory: at most 4 times what is kept.
    """

    def __init__(self, context: FleetContext, waiting: Iterable[SentRow], position: int) -> None:
        """position: the last one in the outbox."""
        self._context = context
        self._waiting: dict[tuple[str, str], list[str]] = {}
        for row in waiting:
            self._waiting.setdefault((row.number, row.peer), []).append(row.id)
        self._pruned = position

    @classmethod
    async def load(cls, connection: Connection, context: FleetContext, position: int) -> SentMessages:
        """Those that are kept, after a restart; the oldest are forgotten."""
        await sent.delete_old(
            connection, context.name, before=context.now() - KEPT_MS, position=position - context.limits.sent
        )
        return cls(context, await sent.list_waiting(connection, context.name), position)

    @property
    def waiting_for(self) -> Sequence[tuple[str, str]]:
        """(number, peer) of the messages that wait for a session."""
        return list(self._waiting)

    def row(self, envelope: OutboxRow, plaintext: bytes, record: e2ee.SessionRecord, now: int) -> SentRow:
        """A message that goes out in this session, as it is kept. now: Unix milliseconds."""
        number, peer = envelope.number, envelope.peer
        sealed = self._context.vault.seal_sent(number, peer, envelope.id, plaintext)
        return SentRow(
            self._context.name, envelope.position, number, peer, envelope.id, sealed, sessions.tag_of(record), now
        )

    async def asked_for(
        self,
        connection: Connection,
        number: str,
        peer: str,
        ids: Sequence[str],
        *,
        asked_by: str,
        record: e2ee.SessionRecord | None,
    ) -> tuple[Sequence[Resend], bool]:
        """Messages that go out now in this session, and whether any waits for another; once for each request.

        Only what was sent to this very peer, so many times, and never in the session in which it was lost.
        """
        tag = sessions.tag_of(record)
        changed: list[SentRow] = []
        ready: list[Resend] = []
        waits = False
        for row in await sent.list_sent(connection, number, ids[: sessions.MAX_REFS]):
            if row.peer != peer or row.asked_by == asked_by or row.attempts >= sessions.MAX_ATTEMPTS:
                continue
            if record is None or row.session == tag:
                waits = True
                self._waiting.setdefault((number, peer), []).append(row.id)
                changed.append(dataclasses.replace(row, asked_by=asked_by, waits=True))
            else:
                row = dataclasses.replace(row, asked_by=asked_by)
                changed.append(self._again(row, tag, ready))
        await sent.save(connection, changed)
        return ready, waits

    async def take_waiting(
        self, connection: Connection, number: str, peer: str, record: e2ee.SessionRecord
    ) -> Sequence[Resend]:
        """Those that waited for this new session; they wait no more."""
        ids = self._waiting.pop((number, peer), None)
        if ids is None:
            return ()
        rows = [row for row in await sent.list_sent(connection, number, ids) if row.waits]
        ready: list[Resend] = []
        await sent.save(connection, [self._again(row, sessions.tag_of(record), ready) for row in rows])
        return ready

    async def prune(self, connection: Connection, position: int) -> None:
        """Forget what is too much. position: the last one in the outbox."""
        if position - self._pruned >= PRUNE_EVERY:
            self._pruned = position
            await sent.delete_below(connection, self._context.name, position - self._context.limits.sent)

    def _again(self, row: SentRow, tag: bytes, ready: list[Resend]) -> SentRow:
        try:
            plaintext = self._context.vault.open_sent(row)
        except e2ee.CorruptState as error:
            log.error("sent.unreadable", extra={"number": row.number, "id": row.id, "error": repr(error)})
        else:
            ready.append(Resend(row.id, row.attempts + 1, plaintext))
        return dataclasses.replace(row, attempts=row.attempts + 1, session=tag, waits=False)
