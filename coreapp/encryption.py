"""Making ciphertexts: at once where the session is at hand, otherwise in a lane of its own.

A session set-up costs as much CPU as thirty messages and a round trip to the servers, so messages that need one wait
in the lane, and those that do not pass them by. Messages to one peer stay in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from prometheus_client import Counter, Gauge

from coreapp import codes
from coreapp.account import OwnDevice
from coreapp.errors import UpstreamAway, UpstreamRefused
from coreapp.journal import Change, Journal
from coreapp.session_store import SessionStore
from coreapp.upstream import Upstream
from tidings import e2ee
from tidings.runtime import crashpoints
from tidings.runtime.batcher import Batcher
from tidings.storage import sessions
from tidings.storage.jobs import Job, State
from tidings.wire import device as frames

log = logging.getLogger(__name__)

SET_UPS = Counter("tidings_session_setups_total", "Sessions opened by us", ["version"])
WAITING = Gauge("tidings_session_setups_waiting", "Recipients whose session is being loaded or opened")

KINDS = {e2ee.PREKEY: frames.PREKEY, e2ee.MESSAGE: frames.MESSAGE}
MAX_FETCH = 100  # recipients in one round of the lane
YIELD_EVERY = 4  # set-ups between two turns of the event loop: about 2 ms
RETRY_SECONDS = 0.5


class Outlet(Protocol):
    """Where encrypted jobs go, and those that cannot be."""

    def offer(self, jobs: Sequence[Job]) -> None: ...

    def fail(self, jobs: Sequence[Job], code: int, details: str) -> None: ...


class Encryption:
    """Encrypts the jobs of one account."""

    def __init__(
        self,
        device: OwnDevice,
        store: SessionStore,
        upstream: Upstream,
        journal: Journal,
        outlet: Outlet,
        *,
        require_pq: bool = False,
    ) -> None:
        self._device = device
        self._store = store
        self._upstream = upstream
        self._journal = journal
        self._outlet = outlet
        self._require_pq = require_pq
        # Jobs whose recipient is in the lane, by recipient, with their contents. Bounded by the job queue's limit.
        self._waiting: dict[str, list[tuple[Job, bytes]]] = {}
        self._lane: Batcher[str, None] = Batcher("session-lane", self._round, max_size=MAX_FETCH, max_in_flight=2)

    def encrypt_now(self, job: Job, content: bytes) -> sessions.SendingHalf | None:
        """Turn a new job into an encrypted one, when its session is at hand and nobody is queued before it.

        Returns what must be committed with the job (and `hold` must be called with that commit), or `None` with the
        job as it was.
        """
        if job.peer in self._waiting:
            return None
        record = self._store.at_hand(job.peer)
        if record is None:
            return None
        return self._encrypt(job, content, record)

    def hold(self, peer: str, committed: asyncio.Future[None]) -> None:
        """Keep the peer's session in memory until the commit of what `encrypt_now` returned."""
        record = self._store.at_hand(peer)
        if record is not None:
            self._store.hold(peer, record, committed)

    def seal_content(self, job: Job, content: bytes) -> None:
        """The form in which a content waits on disk until it can be encrypted for its recipient."""
        job.state, job.kind = State.NEW, ""
        job.body = self._device.sealer.seal(content, context=(job.account, "", "job", job.id))

    def unseal_content(self, job: Job) -> bytes:
        """The content of a job that is `NEW`. Raises `e2ee.CorruptState`."""
        return self._device.sealer.open(job.body, (job.account, "", "job", job.id))

    def enter_lane(self, job: Job, content: bytes) -> None:
        """Queue a job, on disk as `NEW`, for a session."""
        waiting = self._waiting.get(job.peer)
        if waiting is not None:
            waiting.append((job, content))
            return
        self._waiting[job.peer] = [(job, content)]
        WAITING.set(len(self._waiting))
        self._lane.put(job.peer)

    async def close(self) -> None:
        """Leave what is in the lane to the next owner: it is on disk."""
        self._waiting.clear()
        await self._lane.close()

    def _encrypt(self, job: Job, content: bytes, record: e2ee.SessionRecord) -> sessions.SendingHalf:
        kind, body = record.encrypt(content)
        job.state, job.kind, job.body = State.ENCRYPTED, KINDS[kind], body
        return self._store.seal_sending(job.peer, record)

    async def _round(self, peers: Sequence[str]) -> Sequence[None]:
        found = dict(await self._store.load(peers))
        missing = [peer for peer in peers if peer not in found]
        bundles = await self._fetch(missing) if missing else {}
        for count, peer in enumerate(missing, 1):
            record = self._open_session(peer, bundles.get(peer))
            if record is not None:
                found[peer] = record
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        # From here to the journal nothing else runs: what is encrypted first is committed and sent first.
        jobs: list[Job] = []
        touched: dict[str, e2ee.SessionRecord] = {}
        for peer in peers:
            waiting = self._waiting.pop(peer, [])
            record = self._store.at_hand(peer) or found.get(peer)
            if record is None:
                self._give_up(peer, waiting, bundles)
                continue
            for job, content in waiting:
                self._encrypt(job, content, record)
                jobs.append(job)
            if waiting:
                touched[peer] = record
        whole = [self._store.seal_whole(peer, record) for peer, record in touched.items()]
        WAITING.set(len(self._waiting))
        if not jobs:
            return [None] * len(peers)
        crashpoints.reach(crashpoints.AFTER_SEAL_BEFORE_COMMIT)
        committed = self._journal.put(Change(self._device.number, enqueued_jobs=jobs, whole_sessions=whole))
        for peer, record in touched.items():
            self._store.hold(peer, record, committed)
        await committed
        self._outlet.offer(jobs)
        return [None] * len(peers)

    async def _fetch(self, peers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """Ask until the servers answer: the jobs are on disk and can wait."""
        while self._waiting:
            try:
                return await self._upstream.fetch_bundles(peers)
            except UpstreamAway as error:
                log.warning("prekeys.waiting", extra={"recipients": len(peers), "error": str(error)})
            except UpstreamRefused as error:
                log.error("prekeys.refused", extra={"recipients": len(peers), "error": str(error)})
                return {}
            await asyncio.sleep(RETRY_SECONDS)
        return {}

    def _open_session(self, peer: str, bundle: e2ee.PreKeyBundle | None) -> e2ee.SessionRecord | None:
        if bundle is None:
            return None
        try:
            record = e2ee.SessionRecord.initiate(
                self._device.identity, self._device.registration_id, bundle, require_pq=self._require_pq
            )
        except e2ee.E2EEError as error:
            log.error("session.refused", extra={"peer": peer, "error": repr(error)})
            return None
        SET_UPS.labels(record.version).inc()
        return record

    def _give_up(
        self, peer: str, waiting: Sequence[tuple[Job, bytes]], bundles: Mapping[str, e2ee.PreKeyBundle]
    ) -> None:
        jobs = [job for job, _ in waiting]
        if not jobs:
            return
        if peer in bundles:
            self._outlet.fail(jobs, codes.GENERIC, "the recipient's keys cannot be used")
        else:
            self._outlet.fail(jobs, codes.USER_NOT_VALID, "the recipient is not on the network any more")
