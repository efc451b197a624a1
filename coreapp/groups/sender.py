"""Sending to groups: first the sender key to every member, then the message, encrypted once.

Each group has its own loop that works one round at a time, so its messages keep their order. Messages are on disk as
`NEW` until every member has the key, then as `ENCRYPTED`. The state of the key and the ciphertext are committed
together. Messages that the network refuses because the group has changed are encrypted again, before all that were
accepted later.
"""

from __future__ import annotations

import asyncio
import bisect
import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence

from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.groups import own_keys
from coreapp.groups.key_messages import KeyMessages
from coreapp.groups.own_keys import OwnGroupKey, OwnKeys
from coreapp.groups.replica import GroupReplicas
from coreapp.journal.change import Change
from coreapp.sending import failures, group_jobs
from coreapp.sending.wiring import Sending
from tidings import e2ee
from tidings.aio import crashpoints, service
from tidings.client import sender_keys
from tidings.client.errors import NetworkUnavailable
from tidings.storage.business.group_changes import GroupChanges
from tidings.storage.business.groups import StoredGroup
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.quarantine import Item, ItemKind
from tidings.storage.business.sender_keys import KeyHolder
from tidings.wire import codes
from tidings.wire.content import encode_sender_key

log = logging.getLogger(__name__)

ENCRYPTED = Counter("tidings_group_messages_encrypted_total", "Messages encrypted for groups, repeats included")
KEYS_SENT = Counter("tidings_sender_keys_sent_total", "Own sender keys distributed to members")

MAX_ROUND = 100  # messages of one group in one commit
RETRY_SECONDS = 0.5  # seconds after the network did not respond, or returned the same epoch
GROUP_MISSING = (codes.GROUP_MISSING, "the group does not exist, or the business is no longer a participant of it")


@dataclasses.dataclass(slots=True)
class _GroupQueue:
    """Messages of one group that are in progress."""

    id: str
    # id, job and content, in the order of acceptance
    waiting: list[tuple[str, Job, bytes]] = dataclasses.field(default_factory=list)
    # encrypted and unacknowledged messages, with the epoch that they were encrypted for
    in_flight: dict[str, int] = dataclasses.field(default_factory=dict)
    refused: int = -1  # highest epoch that the network refused
    is_key_requested: bool = False  # whether a member needs the key, even without messages
    is_due: bool = False  # whether there may be work
    task: asyncio.Task[None] | None = None


@dataclasses.dataclass(eq=False, repr=False)
class GroupSender:
    """Group messages of one account. Bounded by the job queue's limit."""

    context: ShardContext
    sending: Sending
    key_messages: KeyMessages
    _: dataclasses.KW_ONLY
    replicas: GroupReplicas
    keys: OwnKeys

    def __post_init__(self) -> None:
        self._queues: dict[str, _GroupQueue] = {}
        # Group of each job that hands over a key.
        self._key_messages: dict[str, str] = {}
        # Group of each message that is encrypted and unacknowledged.
        self._in_flight: dict[str, str] = {}
        self._waiting = 0
        # Messages that were encrypted or failed.
        self.left = 0
        self._closing = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Messages that are not encrypted yet."""
        return self._waiting

    @property
    def oldest(self) -> int | None:
        """Acceptance time of the oldest waiting message, Unix milliseconds; None without messages."""
        return min((queue.waiting[0][1].created_at for queue in self._queues.values() if queue.waiting), default=None)

    def resume(self, left: Sequence[Job], under_way: Sequence[KeyHolder], elsewhere: Collection[str] = ()) -> None:
        """Register the jobs of an earlier owner. Must be called before any of them is offered or queued.

        left: jobs in the queue
        under_way: holders whose key is being sent
        elsewhere: ids of jobs that other shards have still to send
        """
        ids = {job.id for job in left} | set(elsewhere)
        self._key_messages.update({holder.job: holder.group_id for holder in under_way if holder.job in ids})
        for job in left:
            if job.kind == group_jobs.MESSAGE:
                self._add_in_flight(self._queue(job.peer), job, group_jobs.unpack(job.body).epoch)

    def enqueue(self, job: Job, content: bytes) -> None:
        """Queue a job for a group. The job is on disk as `NEW`, or already in the journal."""
        if not self._closing.is_set():
            self._put(job, content)
            self.wake(job.peer)

    def returned(self, job: Job) -> None:
        """Encrypt a message again that the network refused because the group has changed."""
        encrypted = group_jobs.unpack(job.body)
        self._remove_in_flight(job.id)
        queue = self._queue(job.peer)
        queue.refused = max(queue.refused, encrypted.epoch)
        again = dataclasses.replace(job, state=JobForm.NEW, kind="", body=encrypted.content)
        try:
            content = self.sending.encryption.unseal_content(again)
        except e2ee.CorruptState:
            self.sending.transmitter.fail([job], codes.MESSAGE_FAILED, "the stored message cannot be read")
        else:
            self._put(again, content)
        self.wake(job.peer)

    def finished(self, ids: Sequence[str]) -> None:
        """Called when these jobs have left the queue; the deletion is in the journal."""
        if not self._key_messages and not self._in_flight:
            return
        handed: dict[str, set[str]] = {}
        for job_id in ids:
            if (group_id := self._key_messages.pop(job_id, None)) is not None:
                handed.setdefault(group_id, set()).add(job_id)
        for group_id, jobs in handed.items():
            changes = self.keys.handed_over(jobs, group_id)
            if changes is not None:
                self.context.journal.put(Change(self.context.account, groups=changes))
            self.wake(group_id)
        for group_id in {self._remove_in_flight(job_id) for job_id in ids if job_id in self._in_flight}:
            self.wake(group_id)

    def hand_over(self, group_id: str) -> None:
        """Send the key to the members of the group who lack it, if there is one."""
        self._queue(group_id).is_key_requested = True
        self.wake(group_id)

    def wake(self, group_id: str) -> None:
        """Start the group's loop, or another round of it."""
        if self._closing.is_set():
            return
        queue = self._queue(group_id)
        queue.is_due = True
        if queue.task is None:
            queue.task = asyncio.create_task(self._work(queue), name=f"group {group_id}")
            queue.task.add_done_callback(lambda task: self._ended(queue, task))

    def remove(self, chosen: Callable[[Job], bool]) -> Sequence[Job]:
        """Remove the chosen jobs that are not encrypted from the queue and return them; the caller ends them."""
        taken = []
        for queue in self._queues.values():
            taken += [job for _, job, _ in queue.waiting if chosen(job)]
            queue.waiting = [entry for entry in queue.waiting if not chosen(entry[1])]
        self._waiting -= len(taken)
        self.left += len(taken)
        return taken

    async def close(self) -> None:
        """Leave the messages in memory to the next owner; they are on disk."""
        self._closing.set()
        await service.cancel([queue.task for queue in self._queues.values() if queue.task is not None])
        self._queues.clear()

    def _queue(self, group_id: str) -> _GroupQueue:
        return self._queues.setdefault(group_id, _GroupQueue(group_id))

    def _add_in_flight(self, queue: _GroupQueue, job: Job, epoch: int) -> None:
        queue.in_flight[job.id] = epoch
        self._in_flight[job.id] = queue.id

    def _remove_in_flight(self, job_id: str) -> str:
        group_id = self._in_flight.pop(job_id, "")
        if group_id:
            self._queue(group_id).in_flight.pop(job_id, None)
        return group_id

    def _put(self, job: Job, content: bytes) -> None:
        # In the order of acceptance, so refused messages go before later ones. Ids are made by several clocks.
        waiting = self._queue(job.peer).waiting
        bisect.insort(waiting, (job.id, job, content), key=lambda entry: (entry[1].created_at, entry[0]))
        self._waiting += 1

    def _take(self, queue: _GroupQueue, count: int) -> list[tuple[Job, bytes]]:
        taken = [(job, content) for _, job, content in queue.waiting[:count]]
        del queue.waiting[:count]
        self._waiting -= len(taken)
        self.left += len(taken)
        return taken

    def _ended(self, queue: _GroupQueue, task: asyncio.Task[None]) -> None:
        queue.task = None
        if self._closing.is_set() or task.cancelled():
            return
        if (error := task.exception()) is not None:
            # Keys in memory may be ahead of the disk: the shard must be reopened.
            self.context.journal.fail(error)
        elif queue.is_due:
            self.wake(queue.id)
        elif not queue.waiting and not queue.in_flight and not queue.is_key_requested:
            self._queues.pop(queue.id, None)

    async def _work(self, queue: _GroupQueue) -> None:
        while queue.is_due and not self._closing.is_set():
            queue.is_due = False
            try:
                queue.is_due = await self._run_round(queue) or queue.is_due
            except NetworkUnavailable as error:
                log.warning("group.waiting", extra={"group": queue.id, "error": str(error)})
                self.sending.failures.note([job_id for job_id, _, _ in queue.waiting], failures.no_response(error))
                await service.wait_for(self._closing, RETRY_SECONDS)
                queue.is_due = True

    async def _run_round(self, queue: _GroupQueue) -> bool:
        """Run one round. Returns whether there is more to do now. Raises `NetworkUnavailable`."""
        if not queue.waiting and not queue.is_key_requested:
            return False
        await self.keys.load((queue.id,))
        group = await self._look_up(queue)
        if group is None or not group.is_member:
            queue.is_key_requested = False
            self._fail(queue, GROUP_MISSING)
            return False
        # Nothing else runs from here to the journal: messages are committed and sent in the order of their encryption.
        key = self.keys.in_memory(queue.id)
        if key.record is None and not queue.waiting:
            queue.is_key_requested = False
            return False
        # A message is sent even to a group without other members: a participant may have joined whose notice has not
        # arrived. The network refuses the message as stale then, and otherwise accepts it for no recipient.
        members = [number for number, _ in group.participants if number != self.context.account]
        messages = self._hand_over(queue, key, group.epoch, members)
        if messages is not None:
            await messages
            return False
        if own_keys.under_way(key.holders) or not queue.waiting:
            return False
        if any(epoch != group.epoch for epoch in queue.in_flight.values()):
            # Some of them may be refused, and must then go first.
            return False
        await self._encrypt(queue, key, group.epoch)
        return bool(queue.waiting)

    async def _look_up(self, queue: _GroupQueue) -> StoredGroup | None:
        group = self.replicas.find(queue.id)
        if group is None or (group.is_member and group.epoch <= queue.refused):
            group = await self.replicas.refresh(queue.id)
            if group is not None and group.is_member and group.epoch <= queue.refused:
                raise NetworkUnavailable(f"epoch {group.epoch} is refused, and the group has no newer one yet")
        return group

    def _hand_over(
        self, queue: _GroupQueue, key: OwnGroupKey, epoch: int, members: Sequence[str]
    ) -> asyncio.Future[None] | None:
        """Send the key to the members who lack it, after replacing it if a former member has it. The future completes
        when it is on disk.

        Returns None if no member lacks it. A new key without holders goes to the journal anyway.
        """
        queue.is_key_requested = False
        cleared: Sequence[str] = ()
        if key.record is None or sender_keys.must_be_replaced(key.holders, members):
            cleared = key.renew(epoch)
        lacking = own_keys.without(key.holders, members)
        if not lacking:
            if cleared:
                # Written before the messages that are encrypted with it, and before its next holder.
                renewed = GroupChanges(self.context.account, own_keys=[key.sealed()], cleared_holders=cleared)
                self.context.journal.put(Change(self.context.account, groups=renewed))
            return None
        assert key.record is not None
        content = encode_sender_key(queue.id, key.record.distribution())
        messages = [self.key_messages.write(member, content) for member in lacking]
        self._key_messages.update({message.job.id: queue.id for message in messages})
        holders = [key.holds(message.job.peer, message.job.id) for message in messages]
        log.info("sender_key.handed_out", extra={"group": queue.id, "members": len(lacking), "new": bool(cleared)})
        KEYS_SENT.inc(len(lacking))
        return self.key_messages.post(
            messages,
            GroupChanges(
                self.context.account,
                own_keys=[key.sealed()] if cleared else (),
                cleared_holders=cleared,
                holders=holders,
            ),
        )

    async def _encrypt(self, queue: _GroupQueue, key: OwnGroupKey, epoch: int) -> None:
        """Encrypt the waiting messages, commit them with the key, and send them."""
        assert key.record is not None
        jobs = []
        # The database refuses the jobs of one change together. So suspects, and what waits with them, have one each.
        waiting = (job_id for job_id, _, _ in queue.waiting[:MAX_ROUND])
        has_suspects = self.context.quarantine.has_any(ItemKind.JOB, waiting)
        for job, content in self._take(queue, 1 if has_suspects else MAX_ROUND):
            # A copy: the job itself may still wait in the journal to be committed as `NEW`.
            encrypted = dataclasses.replace(job)
            # The prepared content: its files have pointers now.
            self.sending.encryption.seal_content(encrypted, content)
            with self.context.quarantine.handling(ItemKind.JOB, job.id, job.peer):
                ciphertext = key.record.encrypt(content)
            body = group_jobs.pack(group_jobs.Encrypted(epoch, encrypted.body, ciphertext))
            encrypted.state, encrypted.kind, encrypted.body = JobForm.ENCRYPTED, group_jobs.MESSAGE, body
            self._add_in_flight(queue, encrypted, epoch)
            jobs.append(encrypted)
        ENCRYPTED.inc(len(jobs))
        crashpoints.reach(crashpoints.AFTER_SEAL_BEFORE_COMMIT)
        await self.context.journal.put(
            Change(
                self.context.account,
                enqueued_jobs=jobs,
                encrypted_messages=[job.id for job in jobs],
                groups=GroupChanges(self.context.account, own_keys=(key.sealed(),)),
                made_from=lambda: [Item(ItemKind.JOB, job.id) for job in jobs],
            )
        )
        self.sending.transmitter.offer(jobs)

    def _fail(self, queue: _GroupQueue, why: tuple[int, str]) -> None:
        self.sending.transmitter.fail(self._take_all(queue), *why)

    def _take_all(self, queue: _GroupQueue) -> Sequence[Job]:
        return [job for job, _ in self._take(queue, len(queue.waiting))]
