"""Items of one shard that ended a process or a shard: suspects are handled alone, quarantined ones not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec
from prometheus_client import Counter

from coreapp import partitions
from coreapp.work_in_progress import WorkInProgress
from tidings.aio.clock import Clock
from tidings.storage.business import quarantine
from tidings.storage.business.jobs import Job
from tidings.storage.business.quarantine import Item, ItemKind, Suspect
from tidings.storage.business.shards import Lease
from tidings.storage.database import Database
from tidings.wire.device import Deliver

log = logging.getLogger(__name__)

ATTEMPTS = Counter("tidings_items_failed_total", "Items whose handling ended a process or a shard", ["kind"])
QUARANTINED = Counter("tidings_items_quarantined_total", "Items that are not handled again until released", ["kind"])

# Items that are read when a shard is opened. Further ones are not recognised, and count further attempts.
MAX_SUSPECTS = 10_000
# Released deliveries that are handled again when a shard is opened; further ones at the next opening.
MAX_RELEASED = 1_000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Deliver).decode


class Quarantine:
    """Attempts at the items of a shard, as read when it was opened."""

    def __init__(
        self, work: WorkInProgress | None = None, suspects: Iterable[Suspect] = (), released: Iterable[Suspect] = ()
    ) -> None:
        """Create the quarantine of a shard.

        work: names the item that the process is handling; None for one without a file
        released: deliveries that were quarantined and are to be handled again
        """
        self._work = work if work is not None else WorkInProgress()
        self.handling = self._work.handling
        self._suspects = {suspect.item: suspect for suspect in suspects if suspect.attempts}
        self.released: Sequence[Deliver] = [_decode(suspect.body) for suspect in released if suspect.body]
        # Quarantined jobs, in the order of acceptance.
        self._jobs: list[Job] = []
        # Ids of the quarantined deliveries that our tables keep.
        self._kept: set[str] = set()

    @classmethod
    async def read(cls, database: Database, work: WorkInProgress, lease: Lease, account: str) -> Quarantine:
        """Read the suspects of all shards, and the released deliveries of this shard.

        account: number that the shard belongs to
        """

        def owns(of_account: str | None, peer: str) -> bool:
            # Rows of releases that had one number do not name it.
            if of_account != account if of_account is not None else lease.block:
                return False
            return (partitions.shard_of(lease, peer) if peer else lease.first_shard) == lease.shard

        async with database.reading() as connection:
            suspects = await quarantine.list_suspects(connection, limit=MAX_SUSPECTS)
            kept = await quarantine.list_kept(connection)
            released = await quarantine.list_released(connection, chosen=owns, limit=MAX_RELEASED)
        found = cls(work, suspects, released)
        found._kept = {item_id for item_id, of_account, peer in kept if owns(of_account, peer)}
        return found

    @property
    def has_suspects(self) -> bool:
        """Return whether any item has ended a process or a shard before."""
        return bool(self._suspects)

    def is_suspect(self, kind: str, item_id: str) -> bool:
        """Return whether the item has ended a process or a shard before."""
        return bool(self._suspects) and quarantine.name(kind, item_id) in self._suspects

    def has_any(self, kind: str, item_ids: Iterable[str]) -> bool:
        """Return whether one of the items has ended a process or a shard before."""
        return bool(self._suspects) and any(quarantine.name(kind, item_id) in self._suspects for item_id in item_ids)

    def holds(self, kind: str, item_id: str) -> bool:
        """Return whether the item is quarantined."""
        if not self._suspects:
            return False
        suspect = self._suspects.get(quarantine.name(kind, item_id))
        return suspect is not None and suspect.is_quarantined

    def __len__(self) -> int:
        """Return the number of quarantined jobs and deliveries."""
        return len(self._jobs) + len(self._kept)

    @property
    def oldest(self) -> int | None:
        """Acceptance time of the oldest quarantined job, Unix milliseconds; None without jobs."""
        return min((job.created_at for job in self._jobs), default=None)

    def keep(self, job: Job) -> None:
        """Keep a quarantined job out of the queue. Its row stays."""
        self._jobs.append(job)

    def remove(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Remove the chosen jobs and return them; the caller ends them."""
        taken = [job for job in self._jobs if chosen(job)]
        self._jobs = [job for job in self._jobs if not chosen(job)]
        return taken

    def kept(self, delivery: Deliver) -> Suspect:
        """Return the row that keeps a quarantined delivery, so that the network need not."""
        # Cross-shard messages, which have no number, belong to the first shard.
        peer = delivery.sender if delivery.n else ""
        suspect = self._suspects[quarantine.name(ItemKind.DELIVERY, delivery.id)]
        self._kept.add(suspect.id)
        return Suspect(
            suspect.kind,
            suspect.id,
            peer,
            suspect.attempts,
            suspect.last_error,
            suspect.tried_at,
            _encode(delivery),
            delivery.to,
        )


async def count_attempts(database: Database, clock: Clock, items: Sequence[Item], error: str) -> Sequence[Suspect]:
    """Count an attempt for each item and log it. Returns the items with their attempts."""
    if not items:
        return ()
    known = {suspect.item: suspect for suspect in await database.query(lambda c: quarantine.find(c, items))}
    now, suspects = clock.now_ms(), []
    for item in dict.fromkeys(items):
        before = known.get(item)
        attempts = before.attempts + 1 if before is not None else 1
        peer, body, account = (before.peer, before.body, before.account) if before is not None else ("", None, None)
        suspects.append(Suspect(item.kind, item.id, peer, attempts, error[: quarantine.MAX_ERROR], now, body, account))
    await database.persist(lambda connection: quarantine.save(connection, suspects), about="jobs")
    for suspect in suspects:
        fields = {"kind": suspect.kind, "id": suspect.id, "attempts": suspect.attempts, "error": error}
        ATTEMPTS.labels(suspect.kind).inc()
        if suspect.is_quarantined:
            QUARANTINED.labels(suspect.kind).inc()
            log.error("item.quarantined", extra=fields)
        else:
            log.error("item.failed", extra=fields)
    return suspects
