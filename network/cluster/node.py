"""Node of the cluster: the wiring of its parts, and the handling of other nodes' frames."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from network.cluster import frames
from network.cluster.announcements import Announcements
from network.cluster.exchange import Exchange
from network.cluster.frames import Claim, FromNode
from network.cluster.links import NodeLinks
from network.cluster.mailbox_polls import FilledMailboxes, MailboxPolls
from network.cluster.membership import MembershipChange, NodeMembership
from network.cluster.outbox import Outbox
from network.cluster.presence import DevicePart, Presence
from network.cluster.redis_client import RedisClient, RedisUnavailable
from network.cluster.token_checks import TokenChecks
from network.directory.directory import Directory
from network.directory.other_nodes import OtherNodes
from network.routing.shared_router import SharedRouter
from tidings.aio.batcher import BatcherFull
from tidings.aio.service import Service, wait_for
from tidings.storage.network.prekeys import PreKeyCounts
from tidings.wire import device

log = logging.getLogger(__name__)

TICK = 0.1  # Seconds.
# Ticks between two renewals of all claims (10 min).
RENEWAL_TICKS = 6000
# Ticks between two evictions of nodes that are no members (1 min).
EVICTION = 600
# Ticks between two attempts to repeat claims missing in Redis, or announcements not processed by all (1 s).
RETRY_TICKS = 10
# Expulsions of devices attached to other nodes that may wait to be repeated.
MAX_EXPELS = 10_000
# Seconds, when this node stops, that other nodes have to respond to forwarded envelopes.
CLOSE_GRACE = 2.0


@dataclasses.dataclass(eq=False)
class ClusterNode(OtherNodes):
    """Service of one node.

    While Redis is unreachable it serves the devices attached to it and stores all other envelopes.
    """

    name = "node"

    server: RedisClient
    membership: NodeMembership
    links: NodeLinks
    router: SharedRouter
    directory: Directory
    mailboxes: FilledMailboxes
    # Called with the identity keys, by number, of devices registered on other nodes; `None` for no call.
    notify_askers: Callable[[Mapping[str, bytes]], Awaitable[None]] | None = None

    def __post_init__(self) -> None:
        self._mailbox_polls = MailboxPolls(self.router, self.mailboxes)
        self._outbox = Outbox(self.links, self._unsent, self._is_wanted)
        # Other nodes may have stored envelopes while a claim was missing, without announcing them.
        self.presence = Presence(
            self.server,
            self.membership,
            self._replaced,
            self._lost,
            before_repeat=self.router.require_read,
            on_repeated=self.router.read_mailbox,
        )
        self.exchange = Exchange(self.router, self.membership, self.presence, self._outbox)
        self._announcements = Announcements(self.membership, self._outbox)
        self._token_checks = TokenChecks(self.router, self.directory)
        self._tasks: set[asyncio.Task[None]] = set()
        self._catching_up: asyncio.Task[None] | None = None
        self._heartbeat: asyncio.Task[bool] | None = None
        # Expulsions that were not sent, by node, number and partition.
        self._expels: dict[tuple[str, str, int], frames.Expel] = {}
        # Whether a read of all mailboxes, which another node has requested, has not started.
        self._must_read_all = False
        self._read_lock = asyncio.Lock()
        self._ticks = 0
        self.membership.on_change = self._changed

    async def join(self) -> None:
        """Listen and join the cluster. Raises `CannotListen` and `RedisUnavailable`."""
        await self.membership.join(await self.links.open(self._received))
        self.exchange.relocation_check.joined()

    def services(self) -> Sequence[Service]:
        """Return the services in the order in which they start."""
        return [self.membership, self.links, self, self._mailbox_polls, self._token_checks]

    async def run(self, stop: asyncio.Event) -> None:
        self._to_all(frames.Hello())
        while not await wait_for(stop, TICK):
            self.run_once()
        for task in (*self._tasks, *filter(None, (self._catching_up, self._heartbeat))):
            task.cancel()

    def run_once(self) -> None:
        """Sweep the exchange, and repeat and renew what is due. Runs every `TICK` seconds."""
        self._ticks += 1
        self.exchange.sweep()
        if self._ticks % EVICTION == 0:
            self.exchange.evict_departed()
        if not self.membership.is_redis_up:
            return
        self._repeat_expels()
        if self._ticks % RENEWAL_TICKS == 0:
            self._start(self.presence.renew())
        needs_retry = self._ticks % RETRY_TICKS == 0 and (self._announcements.incomplete or self.presence.unclaimed)
        if needs_retry or self.exchange.relocation_check.has_unlocated:
            self._start_catch_up()

    async def close(self) -> None:
        """Wait up to 2 s for responses to forwarded envelopes; store the rest."""
        try:
            async with asyncio.timeout(CLOSE_GRACE):
                await self.exchange.wait()
        except TimeoutError:
            log.warning("forwards.unanswered", extra={"envelopes": self.exchange.waiting})
        self.exchange.close()

    async def leave(self) -> None:
        """Send the last responses and leave the cluster."""
        await self._outbox.close()
        await self.membership.leave()
        self.links.close()
        await self.server.close()

    # Calls by connections.

    async def claim(self, number: str, login_epoch: int, part: device.Partition) -> bool:
        return await self.presence.claim(number, login_epoch, part)

    def detached(self, number: str, part: device.Partition) -> None:
        self.exchange.detached(number, part)

    # Calls by the directory.

    async def changed(
        self, numbers: Sequence[str], *, expelled: Sequence[str] = (), keys: Mapping[str, bytes] | None = None
    ) -> None:
        await self._announcements.announce(lambda n: frames.Changed(n, list(numbers), list(expelled), dict(keys or {})))

    def changed_perhaps(self) -> None:
        self._announcements.incomplete = True

    def keys_taken(self, taken: Sequence[tuple[str, bool, bool]]) -> None:
        self._to_all(frames.KeysTaken(list(taken)))

    def keys_left(self, number: str, left: PreKeyCounts) -> None:
        self._to_all(frames.KeysLeft(number, left.prekeys, left.kyber_prekeys))

    async def is_stale(self, number: str, login_epoch: int) -> bool:
        """Return whether the device is attached under a higher login epoch; False while Redis is unreachable."""
        if login_epoch <= 0:
            return False
        try:
            claims = await self.presence.find(number)
        except (RedisUnavailable, BatcherFull):
            return False
        first = claims.get(0)
        return first is not None and login_epoch < first.login_epoch

    async def attached_elsewhere(self, numbers: Sequence[str]) -> frozenset[str]:
        """Return those of the numbers with a device or partition attached to another node; all of them while Redis is
        away.
        """
        try:
            found = await self.presence.find_all(numbers)
        except (RedisUnavailable, BatcherFull):
            return frozenset(numbers)
        me = self.membership.me
        return frozenset(number for number, claims in found.items() if any(c.node != me for c in claims.values()))

    async def broadcast(self, id: str, body: bytes) -> tuple[int, int]:
        """Announce to every attached device of all nodes; return the number of devices and the number of nodes."""
        here, elsewhere = await asyncio.gather(
            self.router.announce(id, body), self._announcements.announce(lambda n: frames.Broadcast(n, id, body))
        )
        return here + elsewhere, len(self.membership.nodes)

    def _to_all(self, frame: FromNode) -> None:
        for node in self.membership.nodes:
            if node != self.membership.me:
                self._outbox.put(node, frame)

    # Frames from other nodes.

    def _received(self, source: str, frame: FromNode) -> None:
        if source not in self.membership.nodes:
            self._send_heartbeat()
        if self.exchange.received(source, frame):
            return
        if isinstance(frame, frames.Acknowledged):
            self._announcements.acknowledged(source, frame.n, frame.count)
        elif isinstance(frame, frames.Changed):
            self._note(frame)
            self._outbox.put(source, frames.Acknowledged(frame.n))
        elif isinstance(frame, frames.ReadAll):
            # Later envelopes wait until the mailboxes have been read, a page of devices at a time.
            self.router.require_read()
            if not self._must_read_all:
                self._must_read_all = True
                self._start(self._read_all())
        elif isinstance(frame, frames.Expel):
            self._expel((frame.number, frame.partition), frame.token)
        elif isinstance(frame, frames.KeysTaken):
            for number, prekey, kyber_prekey in frame.taken:
                self.directory.refills.taken(number, prekey=prekey, kyber_prekey=kyber_prekey)
        elif isinstance(frame, frames.KeysLeft):
            self.directory.refills.uploaded(frame.number, PreKeyCounts(frame.prekeys, frame.kyber_prekeys))
        elif isinstance(frame, frames.Broadcast):
            self._start(self._announce(source, frame))

    async def _read_all(self) -> None:
        """Read the mailboxes of all attached devices, after a read in progress. Requests until its start share it."""
        async with self._read_lock:
            self._must_read_all = False
            await self._mailbox_polls.read_all()

    def _send_heartbeat(self) -> None:
        """Send a heartbeat at once, because an unknown node has joined since the last one."""
        if self._heartbeat is None or self._heartbeat.done():
            self._heartbeat = asyncio.get_running_loop().create_task(self.membership.run_once(), name="heartbeat")

    def _note(self, frame: frames.Changed) -> None:
        directory = self.directory
        if frame.everything:
            directory.recipients.changed_all()
            self._token_checks.request()
        for number in frame.numbers:
            directory.recipients.changed(number)
        if frame.expelled:
            directory.registrations_changed(frame.expelled)
        for number in frame.expelled:
            self.router.expel(number, device.REPLACED)
        if frame.keys and self.notify_askers is not None:
            self._start(self.notify_askers(frame.keys))

    async def _announce(self, source: str, frame: frames.Broadcast) -> None:
        count = await self.router.announce(frame.id, frame.body)
        self._outbox.put(source, frames.Acknowledged(frame.n, count))

    def _expel(self, device_part: DevicePart, token: int) -> None:
        """Expel the device, unless it has attached here again since."""
        if self.presence.token_of(device_part) == token:
            self._lost(device_part)

    # Claims that other nodes end.

    def _replaced(self, device_part: DevicePart, former: Claim) -> None:
        self._expel_there(former.node, frames.Expel(*device_part, former.token))

    def _expel_there(self, node: str, frame: frames.Expel) -> None:
        if not self._outbox.put(node, frame):
            self._expel_later(node, frame)

    def _expel_later(self, node: str, frame: frames.Expel) -> None:
        if len(self._expels) < MAX_EXPELS:
            self._expels[node, frame.number, frame.partition] = frame
        else:
            # That node notices when it repeats its claims.
            log.warning("expel.dropped", extra={"node": node, "number": frame.number})

    def _repeat_expels(self) -> None:
        expels, self._expels = self._expels, {}
        for (node, _, _), frame in expels.items():
            if node in self.membership.nodes:
                self._expel_there(node, frame)

    def _lost(self, device_part: DevicePart) -> None:
        self.router.expel_part(*device_part, device.REPLACED)

    # Changes of membership, and returns of Redis.

    async def _changed(self, change: MembershipChange) -> None:
        self.exchange.changed(change.left)
        self._announcements.nodes_left(change.left)
        if change.left or change.was_away:
            # They may have died between the commit of a change and its announcement.
            self.directory.recipients.changed_all()
            self._token_checks.request()
        if change.was_away:
            self._announcements.incomplete = self.presence.unclaimed = True
            self._start_catch_up()

    def _start_catch_up(self) -> None:
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up(), name="catch-up")

    async def _catch_up(self) -> None:
        """Catch up after an outage.

        Repeat the claims of this node, search for envelopes stored in the meantime, and have the other nodes clear
        their caches if they missed announcements.
        """
        incomplete, lost, unclaimed = (
            self._announcements.incomplete,
            self.exchange.relocation_check.has_unlocated,
            self.presence.unclaimed,
        )
        self._announcements.incomplete = self.exchange.relocation_check.has_unlocated = self.presence.unclaimed = False
        if lost:
            # Sent before any envelope, which would overtake those that the notice is about.
            self.exchange.relocation_check.request_read_all()
        try:
            if unclaimed:
                await self.presence.repeat_claims()
        except (RedisUnavailable, BatcherFull) as error:
            log.warning("claims.not_repeated", extra={"error": str(error)})
            # Flags that were set in the meantime stay set.
            self._announcements.incomplete |= incomplete
            self.exchange.relocation_check.has_unlocated |= lost
            self.presence.unclaimed |= unclaimed
            return
        if incomplete:
            await self._announcements.announce(lambda n: frames.Changed(n, everything=True))
        if incomplete or lost or unclaimed:
            await self._mailbox_polls.read_all()

    def _is_wanted(self, node: str, frame: FromNode) -> bool:
        return self.exchange.is_wanted(node, frame)

    def _unsent(self, node: str, some: Sequence[FromNode]) -> None:
        self.exchange.unsent(node, some)
        for frame in some:
            if isinstance(frame, frames.Expel):
                self._expel_later(node, frame)

    def _start(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception:
                log.exception("node.failed")

        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
