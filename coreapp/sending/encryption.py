"""Ciphertexts: made at once where the session is in memory, otherwise after a queue for sessions.

A session set-up costs as much CPU as thirty messages and a round trip to the servers, so messages that need one wait
in that queue, and those that do not pass them by. Messages to one peer stay in order.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.peers.identities import Identities, Learnt
from coreapp.peers.sessions import SessionStore
from coreapp.sending import failures
from coreapp.sending.failures import JobFailures
from tidings import e2ee
from tidings.client import sessions
from tidings.client.errors import NetworkAway, NetworkRefusal
from tidings.runtime import crashpoints, service
from tidings.runtime.batcher import Batcher, BatcherClosed
from tidings.storage.business.jobs import Job, State
from tidings.storage.business.sessions import SendingHalf, Session
from tidings.wire import addresses, codes, device

log = logging.getLogger(__name__)

SET_UPS = Counter("tidings_session_setups_total", "Sessions opened by us", ["version"])

MAX_FETCH = 100  # recipients in one round of set-ups
# Seconds between two rounds of a steady stream. One costs the servers' commit and six queries whatever it serves, so
# rounds of what comes in this time take three quarters of the CPU for each of some hundred new recipients a second.
SPACING = 0.05
YIELD_EVERY = 4  # set-ups between two turns of the event loop: about 2 ms
RETRY_SECONDS = 0.5
RENEW = "renew"  # kind of a job that is `NEW` and has to go on another session than the one in memory when it enters

# Of a recipient whose keys are others than before, until the business has taken them.
CHANGED = (codes.USER_CHANGED, "the recipient's identity has changed and is not acknowledged")
# Of one whose keys have lost what they had, which whoever sits between us would bring about.
WEAKER = (codes.USER_CHANGED, "the recipient's keys had post-quantum protection, and have none any more")


class Outlet(Protocol):
    """Where encrypted jobs go, and those that cannot be."""

    def offer(self, jobs: Sequence[Job], *, inherited: bool = False) -> None: ...

    def fail(self, jobs: Sequence[Job], code: int, details: str) -> None: ...


class GroupQueue(Protocol):
    """Where jobs wait to be encrypted."""

    def enqueue(self, job: Job, content: bytes) -> None: ...


@dataclasses.dataclass(slots=True)
class _Round:
    """What one round of set-ups has made and is to be committed.

    jobs: encrypted; whole, halves: of new sessions, and of those that were there; learnt: about identities.
    """

    account: str
    jobs: list[Job] = dataclasses.field(default_factory=list)
    whole: list[Session] = dataclasses.field(default_factory=list)
    halves: list[SendingHalf] = dataclasses.field(default_factory=list)
    learnt: Learnt = dataclasses.field(default_factory=Learnt)

    @property
    def is_empty(self) -> bool:
        return not self.jobs and not self.learnt.rows and not self.learnt.kyber

    def change(self) -> Change:
        return Change(
            self.account,
            enqueued_jobs=self.jobs,
            whole_sessions=self.whole,
            sending_halves=self.halves,
            learnt_identities=self.learnt.rows,
            kyber_identities=self.learnt.kyber,
            new_callbacks=self.learnt.callbacks,
        )


class Encryption:
    """Encryption of one account's jobs."""

    def __init__(
        self,
        context: ShardContext,
        sessions: SessionStore,
        identities: Identities,
        *,
        outlet: Outlet,
        failures: JobFailures,
    ) -> None:
        self._device = context.device
        self._upstream = context.upstream
        self._journal = context.journal
        self._require_pq = context.settings.require_pq
        self._store = sessions
        self._identities = identities
        self._outlet = outlet
        self._failures = failures
        # Jobs whose recipient waits for a session, by recipient, with their contents. Bounded by the job queue's limit.
        self._waiting: dict[str, list[tuple[Job, bytes]]] = {}
        # Of those recipients whose session is to be replaced: its base key, `None` for whichever there is.
        self._outdated: dict[str, bytes | None] = {}
        self._set_ups: Batcher[str, None] = Batcher(
            "session-lane", self._round, max_size=MAX_FETCH, max_in_flight=2, spacing=SPACING
        )
        self._closing = asyncio.Event()
        self._groups: GroupQueue | None = None
        # Jobs that wait no longer: encrypted, or failed.
        self.left = 0

    def encrypt_groups_with(self, queue: GroupQueue) -> None:
        """Say who encrypts messages to groups; before the first of them enters."""
        self._groups = queue

    def encrypt_now(self, job: Job, content: bytes) -> SendingHalf | None:
        """Turn a new job into an encrypted one, when its session is in memory and nobody is queued before it.

        A recipient whose identity waits to be acknowledged is refused in the queue.

        Returns what must be committed with the job (and `hold` must be called with that commit), or `None` with the
        job as it was. Nothing may run between this and the journal's `put`: commits must be in the order of keys.
        """
        if addresses.names_group(job.peer) or job.peer in self._waiting:
            return None
        if not self._identities.is_complete or self._identities.blocks(job.peer):
            return None
        record = self._store.in_memory(job.peer)
        if record is None:
            return None
        return self._encrypt(job, content, record)

    def hold(self, peer: str, committed: asyncio.Future[None]) -> None:
        """Keep the peer's session in memory until the commit of what `encrypt_now` returned."""
        self._store.hold(peer, committed)

    def seal_content(self, job: Job, content: bytes) -> None:
        """The form in which a content waits on disk until it can be encrypted for its recipient."""
        job.state, job.kind = State.NEW, ""
        job.body = self._device.sealer.seal(content, context=(job.account, "", "job", job.id))

    def unseal_content(self, job: Job) -> bytes:
        """The content of a job that is `NEW`. Raises `e2ee.CorruptState`."""
        return self._device.sealer.open(job.body, (job.account, "", "job", job.id))

    def enqueue(self, job: Job, content: bytes) -> None:
        """Queue a job for a session; it is on disk as `NEW`, or in the journal already.

        It must enter before anything else is accepted, so that later messages to its peer line up behind it. One of the
        kind `RENEW` has a new session opened, on which goes all that waits for the peer; one that asks for messages
        again has nothing to encrypt and only keeps its place.
        """
        if self._closing.is_set():
            return
        if job.kind == RENEW and job.peer not in self._outdated:
            record = self._store.in_memory(job.peer)
            self._outdated[job.peer] = record.base_key if record is not None else None
        if addresses.names_group(job.peer):
            assert self._groups is not None, "encrypt_groups_with() comes first"
            self._groups.enqueue(job, content)
            return
        waiting = self._waiting.get(job.peer)
        if waiting is not None:
            waiting.append((job, content))
            return
        self._waiting[job.peer] = [(job, content)]
        self._line_up(job.peer)

    def is_renewing(self, peer: str) -> bool:
        """Is a new session with this peer on its way?"""
        return peer in self._outdated

    @property
    def recipients(self) -> int:
        """Those whose session is being loaded or opened."""
        return len(self._waiting)

    @property
    def waiting(self) -> int:
        """Jobs for them."""
        return sum(map(len, self._waiting.values()))

    @property
    def oldest(self) -> int | None:
        """When the first of those jobs was accepted, Unix milliseconds."""
        return next((jobs[0][0].created_at for jobs in self._waiting.values() if jobs), None)

    @property
    def renewals(self) -> int:
        """How many sessions are being replaced."""
        return len(self._outdated)

    def turn_away(self, peer: str) -> None:
        """The peer's identity changed: what waits for it fails, where that needs to be acknowledged."""
        if self._identities.blocks(peer):
            self._outlet.fail([job for job, _ in self._take(peer)], *CHANGED)

    def take_out(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Take the chosen ones of the jobs that wait for a session out of the queue, to be ended by the caller."""
        taken = []
        for peer, waiting in self._waiting.items():
            found = [job for job, _ in waiting if chosen(job)]
            if found:
                # A recipient without jobs stays: the session that is on its way finds nothing to encrypt.
                self._waiting[peer] = [entry for entry in waiting if not chosen(entry[0])]
                taken += found
        self.left += len(taken)
        return taken

    async def close(self) -> None:
        """Leave what waits to the next owner: it is on disk."""
        self._closing.set()
        self._waiting.clear()
        await self._set_ups.close()

    def _line_up(self, peer: str) -> None:
        self._set_ups.put(peer).add_done_callback(self._round_done)

    def _round_done(self, done: asyncio.Future[None]) -> None:
        """A round that failed leaves its messages nowhere but on disk: the shard has to be opened again."""
        if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, BatcherClosed):
            self._journal.fail(error)

    def _encrypt(self, job: Job, content: bytes, record: e2ee.SessionRecord) -> SendingHalf:
        self._encrypt_job(job, content, record)
        return self._store.seal_sending(job.peer, record)

    def _encrypt_job(self, job: Job, content: bytes, record: e2ee.SessionRecord) -> None:
        if job.kind == device.RETRY:
            job.state, job.body = State.ENCRYPTED, content
            return
        kind, body = record.encrypt(content)
        job.state, job.kind, job.body = State.ENCRYPTED, sessions.KINDS[kind], body

    def _take(self, peer: str) -> Sequence[tuple[Job, bytes]]:
        """Take what waits for a peer out of the queue."""
        self._outdated.pop(peer, None)
        jobs = self._waiting.pop(peer, [])
        self.left += len(jobs)
        return jobs

    def _is_outdated(self, peer: str, record: e2ee.SessionRecord) -> bool:
        """Is this session the one that is to be replaced?"""
        if peer not in self._outdated:
            return False
        outdated = self._outdated[peer]
        return outdated is None or outdated == record.base_key

    async def _round(self, peers: Sequence[str]) -> Sequence[None]:
        self._store.pin(peers)
        try:
            with self._identities.pinned(peers):
                await self._serve(peers)
        finally:
            self._store.unpin(peers)
        return [None] * len(peers)

    async def _serve(self, peers: Sequence[str]) -> None:
        drops = {peer: self._store.drops(peer) for peer in peers}
        await self._store.load(peers)
        missing = [peer for peer in peers if (r := self._store.in_memory(peer)) is None or self._is_outdated(peer, r)]
        await self._identities.load(missing if self._identities.is_complete else peers)
        bundles = await self._fetch(missing) if missing else {}
        opened, weaker = await self._open_sessions(missing, bundles)
        # From here to the journal nothing else runs: what is encrypted first is committed and sent first.
        made = _Round(self._device.number)
        for peer in peers:
            record = before = self._store.in_memory(peer)
            is_new = before is None or self._is_outdated(peer, before)
            if is_new:
                if self._store.drops(peer) != drops[peer] or peer not in opened:
                    # The peer registered again while we asked: what we have may be made with its old keys. Or we have
                    # not asked, since only now the session is to be replaced.
                    self._again(peer)
                    continue
                fresh = opened[peer]
                if fresh is not None:
                    record = self._replaced(peer, before, fresh, made.learnt)
                else:
                    # An outdated session is better than none.
                    is_new = False
            waiting = self._take(peer)
            if not waiting:
                continue
            if self._identities.blocks(peer):
                self._outlet.fail([job for job, _ in waiting], *CHANGED)
            elif record is None and peer in weaker:
                self._outlet.fail([job for job, _ in waiting], *WEAKER)
            elif record is None:
                self._give_up(peer, waiting, bundles)
            else:
                self._store.keep(peer, record)
                made.jobs += self._encrypt_all(waiting, record)
                if is_new:
                    made.whole.append(self._store.seal_whole(peer, record))
                else:
                    made.halves.append(self._store.seal_sending(peer, record))
        if not made.is_empty:
            await self._commit(made)

    async def _open_sessions(
        self, peers: Sequence[str], bundles: Mapping[str, e2ee.PreKeyBundle | None]
    ) -> tuple[dict[str, e2ee.SessionRecord | None], set[str]]:
        """A session with each of these, `None` where its bundle allows none; and those whose bundle is a downgrade."""
        opened: dict[str, e2ee.SessionRecord | None] = {}
        weaker: set[str] = set()
        for count, peer in enumerate(peers, 1):
            bundle = bundles.get(peer)
            if bundle and not bundle.has_kyber and self._identities.is_downgrade(peer, bundle.identity_key):
                log.error("session.downgraded", extra={"peer": peer})
                weaker.add(peer)
                opened[peer] = None
                continue
            opened[peer] = self._open_session(peer, bundle)
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return opened, weaker

    async def _commit(self, made: _Round) -> None:
        """Commit a round, then send it."""
        crashpoints.reach(crashpoints.AFTER_SEAL_BEFORE_COMMIT)
        committed = self._journal.put(made.change())
        self._identities.announce(made.learnt, committed)
        for peer in [session.peer for session in made.whole] + [half.peer for half in made.halves]:
            self._store.hold(peer, committed)
        await committed
        self._outlet.offer(made.jobs)

    def _encrypt_all(self, waiting: Sequence[tuple[Job, bytes]], record: e2ee.SessionRecord) -> list[Job]:
        """Encrypted copies: the jobs themselves may still wait in the journal to be committed as `NEW`."""
        jobs = []
        for job, content in waiting:
            encrypted = dataclasses.replace(job)
            try:
                self._encrypt_job(encrypted, content, record)
            except e2ee.E2EEError as error:
                log.error("message.unencryptable", extra={"id": job.id, "to": job.peer, "error": repr(error)})
                self._outlet.fail([job], codes.MESSAGE_FAILED, "the message cannot be encrypted")
                continue
            jobs.append(encrypted)
        return jobs

    def _again(self, peer: str) -> None:
        """Another round for those who wait for this peer."""
        if peer in self._waiting and not self._closing.is_set():
            self._line_up(peer)

    async def _fetch(self, peers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle | None]:
        """Ask until the servers answer: the jobs are on disk and can wait. `None` for a peer that they refuse."""
        while not self._closing.is_set():
            try:
                return await self._upstream.fetch_bundles(peers)
            except NetworkAway as error:
                log.warning("prekeys.waiting", extra={"recipients": len(peers), "error": str(error)})
                held_up = [job.id for peer in peers for job, _ in self._waiting.get(peer, ())]
                self._failures.note(held_up, failures.no_answer(error))
            except NetworkRefusal as error:
                log.error("prekeys.refused", extra={"recipients": len(peers), "error": str(error)})
                if len(peers) == 1:
                    return {peers[0]: None}
                return {k: v for peer in peers for k, v in (await self._fetch([peer])).items()}
            await service.wait_for(self._closing, RETRY_SECONDS)
        return {}

    def _replaced(
        self, peer: str, before: e2ee.SessionRecord | None, fresh: e2ee.SessionRecord, learnt: Learnt
    ) -> e2ee.SessionRecord:
        """A session that was opened, in the place of the one before; what is under way on that can still be read."""
        identity = before.remote_identity if before is not None else None
        kyber = fresh.version >= e2ee.VERSION_4
        self._identities.learn(peer, fresh.remote_identity, learnt, before=identity, kyber=kyber)
        sessions.replace(fresh, before)
        return fresh

    def _open_session(self, peer: str, bundle: e2ee.PreKeyBundle | None) -> e2ee.SessionRecord | None:
        if bundle is None:
            return None
        try:
            record = sessions.initiate(
                self._device.identity, self._device.registration_id, bundle, require_pq=self._require_pq
            )
        except e2ee.E2EEError as error:
            log.error("session.refused", extra={"peer": peer, "error": repr(error)})
            return None
        SET_UPS.labels(record.version).inc()
        return record

    def _give_up(
        self, peer: str, waiting: Sequence[tuple[Job, bytes]], bundles: Mapping[str, e2ee.PreKeyBundle | None]
    ) -> None:
        jobs = [job for job, _ in waiting]
        if peer in bundles:
            self._outlet.fail(jobs, codes.MESSAGE_FAILED, "the recipient's keys cannot be used")
        else:
            self._outlet.fail(jobs, codes.INVALID_USER, "the recipient is not on the network any more")
