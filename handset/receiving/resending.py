"""Messages that a peer could not decrypt: they are kept for 30 days, and sent again on another session."""

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

KEPT_MS = 30 * 86_400_000  # milliseconds; as long as the network keeps an envelope
PRUNE_EVERY = 1_000  # messages


@dataclasses.dataclass(frozen=True, slots=True)
class Resend:
    """Message to send again."""

    id: str  # id of the message
    attempt: int  # number of this attempt, from 1
    plaintext: bytes = dataclasses.field(repr=False)

    @property
    def envelope_id(self) -> str:
        """Return an id that differs from the message's, which the network would drop as a duplicate."""
        return f"{self.id}~{self.attempt}"


@dataclasses.dataclass(eq=False, repr=False)
class SentMessages:
    """Sent messages of one message store. Discarded with it when a transaction fails.

    The ids of messages that wait for a session are in memory: at most 4 times the number of kept messages.
    """

    context: FleetContext
    waiting: dataclasses.InitVar[Iterable[SentRow]]  # rows of messages that wait for a session
    position: int  # last one in the outbox

    def __post_init__(self, waiting: Iterable[SentRow]) -> None:
        self._waiting: dict[tuple[str, str], list[str]] = {}
        for row in waiting:
            self._waiting.setdefault((row.number, row.peer), []).append(row.id)

    @classmethod
    async def load(cls, connection: Connection, context: FleetContext, position: int) -> SentMessages:
        """Load the kept messages after a restart, and delete expired ones.

        position: last one in the outbox
        """
        await sent.delete_old(
            connection, context.name, before=context.now() - KEPT_MS, position=position - context.limits.sent
        )
        return cls(context, await sent.list_waiting(connection, context.name), position)

    @property
    def waiting_for(self) -> Sequence[tuple[str, str]]:
        """Return the (number, peer) of messages that wait for a session."""
        return list(self._waiting)

    def row(self, envelope: OutboxRow, plaintext: bytes, record: e2ee.SessionRecord, now: int) -> SentRow:
        """Return the row of a message that is sent on this session.

        now: Unix milliseconds
        """
        number, peer = envelope.number, envelope.peer
        sealed = self.context.sealer.seal_sent(number, peer, envelope.id, plaintext)
        return SentRow(
            self.context.name, envelope.position, number, peer, envelope.id, sealed, sessions.tag_of(record), now
        )

    async def take_requested(
        self,
        connection: Connection,
        number: str,
        peer: str,
        ids: Sequence[str],
        *,
        asked_by: str,
        record: e2ee.SessionRecord | None,
    ) -> tuple[Sequence[Resend], bool]:
        """Return the messages to resend on this session, and whether any waits for another session.

        Each request is served once. Only messages to this peer are resent, at most `sessions.MAX_ATTEMPTS` times,
        and never on the session on which they were lost.

        ids: of the requested messages
        asked_by: id of the request
        record: present session; `None` for none
        """
        tag = sessions.tag_of(record)
        changed: list[SentRow] = []
        served: list[SentRow] = []
        waits = False
        for row in await sent.list_sent(connection, number, ids[: sessions.MAX_REFS]):
            if row.peer != peer or row.asked_by == asked_by or row.attempts >= sessions.MAX_ATTEMPTS:
                continue
            if record is None or row.session == tag:
                waits = True
                self._waiting.setdefault((number, peer), []).append(row.id)
                changed.append(dataclasses.replace(row, asked_by=asked_by, waits=True))
            else:
                served.append(row)
                changed.append(_attempted(dataclasses.replace(row, asked_by=asked_by), tag))
        await sent.save(connection, changed)
        return self._open(served), waits

    async def take_waiting(
        self, connection: Connection, number: str, peer: str, record: e2ee.SessionRecord
    ) -> Sequence[Resend]:
        """Return the messages that waited for this new session, and mark them as no longer waiting."""
        ids = self._waiting.pop((number, peer), None)
        if ids is None:
            return ()
        rows = [row for row in await sent.list_sent(connection, number, ids) if row.waits]
        tag = sessions.tag_of(record)
        await sent.save(connection, [_attempted(row, tag) for row in rows])
        return self._open(rows)

    async def prune(self, connection: Connection, position: int) -> None:
        """Delete the messages above the limit, once per `PRUNE_EVERY` positions.

        position: last one in the outbox
        """
        if position - self.position >= PRUNE_EVERY:
            self.position = position
            await sent.delete_below(connection, self.context.name, position - self.context.limits.sent)

    def _open(self, rows: Iterable[SentRow]) -> list[Resend]:
        """Return the messages of these rows for their next attempts. One that cannot be opened is given up."""
        resends: list[Resend] = []
        for row in rows:
            try:
                plaintext = self.context.sealer.open_sent(row)
            except e2ee.CorruptState as error:
                log.error("sent.unreadable", extra={"number": row.number, "id": row.id, "error": repr(error)})
            else:
                resends.append(Resend(row.id, row.attempts + 1, plaintext))
        return resends


def _attempted(row: SentRow, tag: bytes) -> SentRow:
    """Return the row after one more attempt, on the session with this tag."""
    return dataclasses.replace(row, attempts=row.attempts + 1, session=tag, waits=False)
