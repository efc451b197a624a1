"""Sealing of stored callback bodies: each body is bound to its own row."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Sequence

from prometheus_client import Counter

from tidings import e2ee
from tidings.storage.business import callback_history, callbacks, shards
from tidings.storage.business.callback_history import Attempt, EndedTexts, StoredCallback
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.shards import Lease
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

UNREADABLE = Counter("tidings_callbacks_unreadable_total", "Stored callbacks whose body could not be opened")

# A `seq` is a count of microseconds shifted left by 5 bits. One sub-key per day of `seq` seals far fewer bodies than
# the 2^32 that are safe with random nonces.
_DAY = 86_400_000_000 << 5
_COLUMN = "callback"  # column name in the sealing context
_RESPONSE, _HISTORY = "response", "history"  # those of responses, and of the texts of ended callbacks
_PAGE = 500  # rows per transaction of `seal_old`


class BodySealer:
    """Seals the bodies of a shard's callbacks before they are written, and opens them after they are read."""

    def __init__(self, sealer: e2ee.Sealer) -> None:
        self._sealer = sealer

    def seal(self, found: Sequence[Callback]) -> list[bytes]:
        """Return the sealed bodies in the order of `found`. Every callback must have its `seq`."""
        sealed: list[bytes] = []
        for (account, day), rows in itertools.groupby(found, lambda row: (row.account, row.seq // _DAY)):
            sealed += self._sealer.seal_rows([(row.seq, row.body) for row in rows], context=(account, day, _COLUMN))
        return sealed

    def seal_attempts(self, found: Sequence[Attempt]) -> Sequence[Attempt]:
        """Return the attempts in their order, with sealed responses."""
        return [
            dataclasses.replace(
                one,
                response=self._sealer.seal(
                    one.response, context=(one.account, one.seq // _DAY, _RESPONSE), row=_name(one)
                ),
            )
            if one.response is not None
            else one
            for one in found
        ]

    def seal_texts(self, account: str, name: int, texts: bytes) -> bytes:
        """Return the sealed texts of a segment of the history with this name."""
        return self._sealer.seal(texts, context=(account, name // _DAY, _HISTORY), row=str(name))

    def open_ended(self, account: str, stored: StoredCallback) -> EndedTexts:
        """Return the texts of an ended callback; empty ones if they cannot be opened."""
        return self.open_all_ended(account, [stored])[0]

    def open_all_ended(self, account: str, found: Sequence[StoredCallback]) -> Sequence[EndedTexts]:
        """Return the texts of ended callbacks in their order; empty ones if they cannot be opened. Each part is opened
        once.
        """
        opened: dict[int, Sequence[EndedTexts]] = {}
        for stored in found:
            if stored.part.name not in opened:
                opened[stored.part.name] = self._open_part(account, stored)
        # A part that cannot be opened has no texts.
        return [
            texts[stored.entry.index_in_part] if (texts := opened[stored.part.name]) else EndedTexts(b"", b"")
            for stored in found
        ]

    def _open_part(self, account: str, stored: StoredCallback) -> Sequence[EndedTexts]:
        part = stored.part
        try:
            opened = self._sealer.open(part.sealed, (account, part.name // _DAY, _HISTORY, str(part.name)))
        except (e2ee.CorruptState, e2ee.UnknownSealingKey) as error:
            UNREADABLE.inc()
            log.error("callbacks.unreadable", extra={"event_id": stored.entry.event_id, "error": str(error)})
            return ()
        return callback_history.decode_texts(opened)

    def open_response(self, attempt: Attempt) -> bytes:
        """Return the opened response of a stored attempt; empty for none and if it cannot be opened."""
        if attempt.response is None:
            return b""
        context = (attempt.account, attempt.seq // _DAY, _RESPONSE, _name(attempt))
        try:
            return self._sealer.open(attempt.response, context)
        except (e2ee.CorruptState, e2ee.UnknownSealingKey) as error:
            UNREADABLE.inc()
            log.error("callbacks.unreadable_response", extra={"seq": attempt.seq, "error": str(error)})
            return b""

    def open(self, found: Sequence[Callback]) -> Sequence[Callback]:
        """Return the callbacks with opened bodies. A body that cannot be opened becomes empty and is logged."""
        return [dataclasses.replace(row, body=self._open(row)) for row in found]

    def _open(self, row: Callback) -> bytes:
        try:
            return self._sealer.open(row.body, (row.account, row.seq // _DAY, _COLUMN, row.seq))
        except (e2ee.CorruptState, e2ee.UnknownSealingKey) as error:
            UNREADABLE.inc()
            log.error("callbacks.unreadable", extra={"event_id": row.event_id, "error": str(error)})
            return b""

    async def seal_old(self, database: Database, lease: Lease) -> int:
        """Seal bodies that an earlier release stored unsealed, one page per transaction. Returns their number. Raises
        `LeaseLost`.
        """
        count, after = 0, 0

        async def work(connection: Connection) -> Sequence[Callback]:
            await shards.fence(connection, lease)
            page = await callbacks.list_unsealed(connection, lease.shard, after=after, limit=_PAGE)
            await callbacks.replace_bodies(connection, page, self.seal(page))
            return page

        while page := await database.persist(work, about="messages"):
            count, after = count + len(page), page[-1].seq
        if count:
            log.info("callbacks.sealed", extra={"shard": lease.shard, "count": count})
        return count


def _name(attempt: Attempt) -> str:
    """Return the name of an attempt's row."""
    return f"{attempt.seq}/{attempt.slot}"
