"""Encryption of messages: at once where the session is in memory, otherwise after a queue for sessions.

A session set-up costs as much CPU as 30 messages and a round trip to the network. So messages that need one wait in
that queue, and the others overtake them. Messages to one peer stay in order.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.peers.contact_cache import NOT_VALID, ContactCache
from coreapp.peers.identities import Identities, IdentityFindings
from coreapp.peers.sessions import SessionStore
from coreapp.sending import failures
from coreapp.sending.failures import JobFailures
from coreapp.sending.transmission import Transmitter
from tidings import e2ee
from tidings.aio import crashpoints, service
from tidings.aio.batcher import Batcher, BatcherClosed
from tidings.client import sessions
from tidings.client.errors import NetworkRefusal, NetworkUnavailable
from tidings.storage.business.contacts import StoredContact
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.quarantine import Item, ItemKind
from tidings.storage.business.sessions import SealedSendingHalf, SealedSession
from tidings.wire import addresses, codes, device

log = logging.getLogger(__name__)

SET_UPS = Counter("tidings_session_setups_total", "Sessions that the business opened", ["version"])

MAX_FETCH = 100  # recipients in one round of set-ups
# Seconds between two rounds under steady load. A round costs one commit at the network and six queries, whatever its
# size. Collecting the set-ups of this time reduces the CPU per set-up to three quarters at some hundred new recipients
# per second.
SPACING = 0.05
YIELD_EVERY = 4  # set-ups per event-loop iteration: about 2 ms
RETRY_SECONDS = 0.5  # seconds between attempts to fetch bundles
RENEW = "renew"  # kind of a `NEW` job that must use another session than the one in memory when it enters

# Failure for a recipient whose identity changed, until the business acknowledges it.
CHANGED = (codes.USER_CHANGED, "the recipient's identity has changed and is not acknowledged")
# Failure for a recipient whose keys lost post-quantum protection, which an attacker between us could cause.
DOWNGRADED = (codes.USER_CHANGED, "the recipient's keys no longer have post-quantum protection")


@dataclasses.dataclass(slots=True)
class _Round:
    """Results of one round of set-ups, to be committed."""

    account: str
    jobs: list[Job] = dataclasses.field(default_factory=list)  # encrypted jobs
    whole: list[SealedSession] = dataclasses.field(default_factory=list)  # new sessions
    halves: list[SealedSendingHalf] = dataclasses.field(default_factory=list)  # changed halves of existing sessions
    identity_findings: IdentityFindings = dataclasses.field(default_factory=IdentityFindings)
    checked: list[StoredContact] = dataclasses.field(default_factory=list)  # recipients with or without keys

    @property
    def is_empty(self) -> bool:
        # A session without a job is one whose jobs all failed: it is in memory, so it must be on disk.
        rows = self.jobs or self.whole or self.halves or self.checked
        return not (rows or self.identity_findings.rows or self.identity_findings.kyber)

    def change(self) -> Change:
        return Change(
            self.account,
            enqueued_jobs=self.jobs,
            encrypted_messages=[job.id for job in self.jobs],
            whole_sessions=self.whole,
            sending_halves=self.halves,
            found_identities=self.identity_findings.rows,
            kyber_identities=self.identity_findings.kyber,
            checked_contacts=self.checked,
            new_callbacks=self.identity_findings.callbacks,
            made_from=lambda: [Item(ItemKind.JOB, job.id) for job in self.jobs],
        )


@dataclasses.dataclass(eq=False, repr=False)
class Encryption:
    """Encrypts the jobs of one account."""

    context: ShardContext
    sessions: SessionStore
    identities: Identities
    contacts: ContactCache
    _: dataclasses.KW_ONLY
    transmitter: Transmitter
    failures: JobFailures

    def __post_init__(self) -> None:
        # Jobs and contents whose recipient waits for a session, by recipient. Bounded by the job queue's limit.
        self._waiting: dict[str, list[tuple[Job, bytes]]] = {}
        # By recipient whose session is to be replaced: its base key; None for any session.
        self._outdated: dict[str, bytes | None] = {}
        self._set_ups: Batcher[str, None] = Batcher(
            "session-lane",
            self._run_round,
            max_size=MAX_FETCH,
            max_in_flight=2,
            # At most one entry per key of `_waiting`.
            max_pending=sys.maxsize,
            spacing=SPACING,
        )
        self._closing = asyncio.Event()
        # Jobs that have left the queue: encrypted or failed.
        self.left = 0

    def encrypt_now(self, job: Job, content: bytes) -> SealedSendingHalf | None:
        """Encrypt a new job if its session is in memory and no job to its peer is queued.

        Recipients with an unacknowledged identity are refused in the queue. Returns the row that must be committed with
        the job; `hold` must be called with that commit. Returns None and leaves the job unchanged if it cannot be
        encrypted now. Nothing may run between this call and the journal's `put`: commits must have the order of keys.
        """
        if addresses.names_group(job.peer) or job.peer in self._waiting:
            return None
        if not self.identities.is_complete or self.identities.blocks(job.peer):
            return None
        record = self.sessions.in_memory(job.peer)
        if record is None:
            return None
        return self._encrypt(job, content, record)

    def hold(self, peer: str, committed: asyncio.Future[None]) -> None:
        """Keep the peer's session in memory until the commit of the row that `encrypt_now` returned."""
        self.sessions.hold(peer, committed)

    def seal_content(self, job: Job, content: bytes) -> None:
        """Seal a content into its job, which stores it until it can be encrypted for its recipient."""
        job.state, job.kind = JobForm.NEW, ""
        job.body = self.context.device.sealer.seal(content, context=(job.account, "", "job", job.id))

    def unseal_content(self, job: Job) -> bytes:
        """Return the content of a `NEW` job. Raises `e2ee.CorruptState`."""
        return self.context.device.sealer.open(job.body, (job.account, "", "job", job.id))

    def enqueue(self, job: Job, content: bytes) -> None:
        """Queue a job for a session. The job is on disk as `NEW`, or already in the journal.

        It must enter before any other message is accepted, so that later messages to its peer queue behind it. A job of
        kind `RENEW` has a new session opened, in which all waiting jobs of the peer are encrypted. A retry request has
        nothing to encrypt and only keeps its position.
        """
        if self._closing.is_set():
            return
        if job.kind == RENEW and job.peer not in self._outdated:
            record = self.sessions.in_memory(job.peer)
            self._outdated[job.peer] = record.base_key if record is not None else None
        if addresses.names_group(job.peer):
            assert self.transmitter.groups is not None
            self.transmitter.groups.enqueue(job, content)
            return
        waiting = self._waiting.get(job.peer)
        if waiting is not None:
            waiting.append((job, content))
            return
        self._waiting[job.peer] = [(job, content)]
        self._request_session(job.peer)

    def is_renewing(self, peer: str) -> bool:
        """Return whether a new session with this peer is being opened."""
        return peer in self._outdated

    @property
    def recipients(self) -> int:
        """Recipients whose session is being loaded or opened."""
        return len(self._waiting)

    @property
    def waiting(self) -> int:
        """Jobs to these recipients."""
        return sum(map(len, self._waiting.values()))

    @property
    def oldest(self) -> int | None:
        """Acceptance time of the first of these jobs, Unix milliseconds; None without jobs."""
        return next((jobs[0][0].created_at for jobs in self._waiting.values() if jobs), None)

    @property
    def renewals(self) -> int:
        """Sessions that are being replaced."""
        return len(self._outdated)

    def reject(self, peer: str) -> None:
        """Fail the waiting jobs of a peer whose identity changed, if the change must be acknowledged."""
        if self.identities.blocks(peer):
            self.transmitter.fail([job for job, _ in self._take(peer)], *CHANGED)

    def remove(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Remove the chosen jobs from the queue and return them; the caller ends them."""
        taken = []
        for peer, waiting in self._waiting.items():
            found = [job for job, _ in waiting if chosen(job)]
            if found:
                # The recipient stays queued without jobs: the session being opened then has nothing to encrypt.
                self._waiting[peer] = [entry for entry in waiting if not chosen(entry[0])]
                taken += found
        self.left += len(taken)
        return taken

    async def close(self) -> None:
        """Leave the waiting jobs to the next owner; they are on disk."""
        self._closing.set()
        self._waiting.clear()
        await self._set_ups.close()

    def _request_session(self, peer: str) -> None:
        self._set_ups.put(peer).add_done_callback(self._round_done)

    def _round_done(self, done: asyncio.Future[None]) -> None:
        """Fail the journal after a failed round: its messages exist on disk only, so the shard must be reopened."""
        if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, BatcherClosed):
            self.context.journal.fail(error)

    def _encrypt(self, job: Job, content: bytes, record: e2ee.SessionRecord) -> SealedSendingHalf:
        self._encrypt_job(job, content, record)
        return self.sessions.seal_sending(job.peer, record)

    def _encrypt_job(self, job: Job, content: bytes, record: e2ee.SessionRecord) -> None:
        if job.kind == device.RETRY:
            job.state, job.body = JobForm.ENCRYPTED, content
            return
        kind, body = record.encrypt(content)
        job.state, job.kind, job.body = JobForm.ENCRYPTED, sessions.KINDS[kind], body

    def _take(self, peer: str, count: int | None = None) -> Sequence[tuple[Job, bytes]]:
        """Remove the first waiting jobs of a peer from the queue and return them. Another round serves the others.

        count: number of jobs; None for all
        """
        self._outdated.pop(peer, None)
        waiting = self._waiting.pop(peer, [])
        taken = waiting[:count]
        self.left += len(taken)
        if len(taken) < len(waiting):
            self._waiting[peer] = waiting[len(taken) :]
            self._start_next_round(peer)
        return taken

    def _has_suspects(self, peer: str) -> bool:
        """Return whether one of the peer's waiting jobs has ended a process or a shard before."""
        return self.context.quarantine.has_any(ItemKind.JOB, (job.id for job, _ in self._waiting.get(peer, ())))

    def _is_outdated(self, peer: str, record: e2ee.SessionRecord) -> bool:
        """Return whether this session is the one to be replaced."""
        if peer not in self._outdated:
            return False
        outdated = self._outdated[peer]
        return outdated is None or outdated == record.base_key

    async def _run_round(self, peers: Sequence[str]) -> Sequence[None]:
        # Jobs of one round are one change, which the database refuses as a whole. So suspects have rounds of their own.
        suspected = [peer for peer in peers if self._has_suspects(peer)]
        others = [peer for peer in peers if peer not in suspected]
        for served in [others, *([peer] for peer in suspected)]:
            with self.sessions.pinned(served), self.identities.pinned(served):
                await self._serve(served)
        return [None] * len(peers)

    async def _serve(self, peers: Sequence[str]) -> None:
        drops = {peer: self.sessions.drops(peer) for peer in peers}
        await self.sessions.load(peers)
        missing = [peer for peer in peers if (r := self.sessions.in_memory(peer)) is None or self._is_outdated(peer, r)]
        await self.identities.load(missing if self.identities.is_complete else peers)
        bundles = await self._fetch(missing) if missing else {}
        opened, downgraded = await self._open_sessions(missing, bundles)
        # Nothing else runs from here to the journal: messages are committed and sent in the order of their encryption.
        made = _Round(self.context.device.number)
        for peer in peers:
            record = before = self.sessions.in_memory(peer)
            is_new = before is None or self._is_outdated(peer, before)
            if is_new:
                if self.sessions.drops(peer) != drops[peer] or peer not in opened:
                    # The peer registered again during the fetch, so the new session may use its old keys. Or no bundle
                    # was fetched, because the session became outdated only now.
                    self._start_next_round(peer)
                    continue
                fresh = opened[peer]
                if fresh is not None:
                    record = self._replaced(peer, before, fresh, made.identity_findings)
                else:
                    # An outdated session is better than none.
                    is_new = False
            waiting = self._take(peer, 1 if self._has_suspects(peer) else None)
            if not waiting:
                continue
            if peer in opened:
                made.checked += self._checked_by_fetch(peer, waiting, bundles)
            if self.identities.blocks(peer):
                self.transmitter.fail([job for job, _ in waiting], *CHANGED)
            elif record is None and peer in downgraded:
                self.transmitter.fail([job for job, _ in waiting], *DOWNGRADED)
            elif record is None:
                self._give_up(peer, waiting, bundles)
            else:
                self.sessions.keep(peer, record)
                made.jobs += self._encrypt_all(waiting, record)
                if is_new:
                    made.whole.append(self.sessions.seal_whole(peer, record))
                else:
                    made.halves.append(self.sessions.seal_sending(peer, record))
        if not made.is_empty:
            await self._commit(made)

    async def _open_sessions(
        self, peers: Sequence[str], bundles: Mapping[str, e2ee.PreKeyBundle | None]
    ) -> tuple[dict[str, e2ee.SessionRecord | None], set[str]]:
        """Open a session with each peer. Returns the sessions, None where the bundle is unusable, and the peers whose
        bundle is a downgrade.
        """
        opened: dict[str, e2ee.SessionRecord | None] = {}
        downgraded: set[str] = set()
        for count, peer in enumerate(peers, 1):
            bundle = bundles.get(peer)
            if bundle and not bundle.has_kyber and self.identities.is_downgrade(peer, bundle.identity_key):
                log.error("session.downgraded", extra={"peer": peer})
                downgraded.add(peer)
                opened[peer] = None
                continue
            waiting = self._waiting.get(peer)
            with self.context.quarantine.handling(ItemKind.JOB, waiting[0][0].id if waiting else "", peer):
                opened[peer] = self._open_session(peer, bundle)
            if count % YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return opened, downgraded

    async def _commit(self, made: _Round) -> None:
        """Commit a round, then send it."""
        crashpoints.reach(crashpoints.AFTER_SEAL_BEFORE_COMMIT)
        committed = self.context.journal.put(made.change())
        self.identities.announce(made.identity_findings, committed)
        for peer in [session.peer for session in made.whole] + [half.peer for half in made.halves]:
            self.sessions.hold(peer, committed)
        await committed
        self.transmitter.offer(made.jobs)

    def _encrypt_all(self, waiting: Sequence[tuple[Job, bytes]], record: e2ee.SessionRecord) -> list[Job]:
        """Return encrypted copies: the jobs themselves may still wait in the journal to be committed as `NEW`."""
        jobs = []
        for job, content in waiting:
            encrypted = dataclasses.replace(job)
            try:
                with self.context.quarantine.handling(ItemKind.JOB, job.id, job.peer):
                    self._encrypt_job(encrypted, content, record)
            except e2ee.E2EEError as error:
                log.error("message.unencryptable", extra={"id": job.id, "to": job.peer, "error": repr(error)})
                self.transmitter.fail([job], codes.MESSAGE_FAILED, "the message cannot be encrypted")
                continue
            jobs.append(encrypted)
        return jobs

    def _start_next_round(self, peer: str) -> None:
        """Start another round for a peer with waiting jobs."""
        if peer in self._waiting and not self._closing.is_set():
            self._request_session(peer)

    async def _fetch(self, peers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle | None]:
        """Fetch bundles, retrying until the network responds: the jobs are on disk and can wait. None for a peer that
        the network refuses.
        """
        while not self._closing.is_set():
            try:
                return await self.context.network_connection.fetch_bundles(peers)
            except NetworkUnavailable as error:
                log.warning("prekeys.waiting", extra={"recipients": len(peers), "error": str(error)})
                held_up = [job.id for peer in peers for job, _ in self._waiting.get(peer, ())]
                self.failures.note(held_up, failures.no_response(error))
            except NetworkRefusal as error:
                log.error("prekeys.refused", extra={"recipients": len(peers), "error": str(error)})
                if len(peers) == 1:
                    return {peers[0]: None}
                # The refusal may be about one of them only.
                found: dict[str, e2ee.PreKeyBundle | None] = {}
                for peer in peers:
                    found.update(await self._fetch([peer]))
                return found
            await service.wait_for(self._closing, RETRY_SECONDS)
        return {}

    def _replaced(
        self, peer: str, before: e2ee.SessionRecord | None, fresh: e2ee.SessionRecord, findings: IdentityFindings
    ) -> e2ee.SessionRecord:
        """Replace a session by a new one, which still decrypts messages in flight on the old one."""
        identity = before.remote_identity if before is not None else None
        kyber = fresh.version >= e2ee.VERSION_4
        self.identities.learn(peer, fresh.remote_identity, findings, before=identity, kyber=kyber)
        sessions.replace(fresh, before)
        return fresh

    def _open_session(self, peer: str, bundle: e2ee.PreKeyBundle | None) -> e2ee.SessionRecord | None:
        if bundle is None:
            return None
        try:
            record = sessions.initiate(
                self.context.device.identity,
                self.context.device.registration_id,
                bundle,
                require_pq=self.context.settings.require_pq,
            )
        except e2ee.E2EEError as error:
            log.error("session.refused", extra={"peer": peer, "error": repr(error)})
            return None
        SET_UPS.labels(record.version).inc()
        return record

    def _checked_by_fetch(
        self, peer: str, waiting: Sequence[tuple[Job, bytes]], bundles: Mapping[str, e2ee.PreKeyBundle | None]
    ) -> Sequence[StoredContact]:
        """Record whether the network has keys of the recipient of messages, unless it refused to say. Returns the rows
        to store.

        Other jobs check no contact: any sender can cause them by a message that cannot be decrypted.
        """
        is_refused = peer in bundles and bundles[peer] is None
        if is_refused or all(job.kind for job, _ in waiting):
            return ()
        return self.contacts.record_keys(peer, has_keys=peer in bundles)

    def _give_up(
        self, peer: str, waiting: Sequence[tuple[Job, bytes]], bundles: Mapping[str, e2ee.PreKeyBundle | None]
    ) -> None:
        jobs = [job for job, _ in waiting]
        if peer in bundles:
            self.transmitter.fail(jobs, codes.MESSAGE_FAILED, "the recipient's keys cannot be used")
        else:
            self.transmitter.fail(jobs, codes.INVALID_USER, NOT_VALID)
