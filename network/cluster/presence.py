"""Presence of devices: each partition is claimed by the node it is attached to, valid while that node is alive."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client import Counter

from network.cluster import scripts
from network.cluster.frames import Claim, Claims, decode_claim, decode_claims, encode_claim
from network.cluster.membership import NodeMembership
from network.cluster.redis_client import RedisClient, RedisUnavailable, Script
from tidings.aio.batcher import Batcher, BatcherClosed, BatcherFull
from tidings.storage.database import pages
from tidings.wire import device

log = logging.getLogger(__name__)

CLAIMED = Counter("tidings_network_claims_total", "Devices that attached to this node", ["outcome"])

# Seconds that a claim lasts in Redis without a repetition.
CLAIM_SECONDS = 3600
# Claims, releases and queries per batch.
BATCH = 200
# Seconds between two batches of renewals.
PAUSE = 0.05
# Attempts of one claim that finds claims of dead nodes.
TRIES = 10

_CLAIM = Script(scripts.CLAIM)
_RENEW = Script(scripts.RENEW)
_RELEASE = Script(scripts.RELEASE)

# (number, partition of its device)
DevicePart = tuple[str, int]


_NO_CLAIMS: Mapping[int, Claim] = {}


def owner(claims: Claims, hash_slot: int) -> Claim | None:
    """Return the claim of the partition that a hash slot belongs to."""
    for partition, claim in claims.items():
        if hash_slot % claim.partitions == partition:
            return claim
    return None


class HigherEpochAttached(Exception):
    """The device is attached under a higher login epoch or layout on a live node."""


@dataclasses.dataclass(eq=False)
class Presence:
    """Claims of this node, and queries for the claims of all nodes.

    Without Redis devices attach unclaimed: other nodes consider them absent and store envelopes for them.
    """

    server: RedisClient
    membership: NodeMembership
    # Called with (device part, claim) when a claim of this node has ended another node's claim.
    on_replaced: Callable[[DevicePart, Claim], None]
    # Called with a device part that has attached to another node.
    on_lost: Callable[[DevicePart], None]
    # Called with a number whose claim is about to be repeated, so that other nodes may find it from now on.
    before_repeat: Callable[[str], None] = lambda number: None
    # Called with a number whose claim was repeated.
    on_repeated: Callable[[str], None] = lambda number: None
    # Whether a device is attached here whose claim is missing in Redis, so that claims must be repeated.
    unclaimed: bool = False
    _repeating: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    _tokens: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))
    _held: dict[str, dict[int, Claim]] = dataclasses.field(default_factory=dict)
    _claiming: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    _writing: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        self._claims: Batcher[tuple[DevicePart, Claim, bool, frozenset[str]], list[bytes]] = Batcher(
            "claims", self._claim, max_size=BATCH, max_in_flight=4
        )
        self._releases: Batcher[tuple[DevicePart, Claim], None] = Batcher(
            "releases", self._release, max_size=BATCH, max_in_flight=4
        )
        self._lookups: Batcher[str, Claims] = Batcher("presence", self._look_up, max_size=BATCH, max_in_flight=4)

    def is_claimed_here(self, number: str, hash_slot: int) -> bool:
        """Return whether the partition with this hash slot is attached here or about to be."""
        return number in self._claiming or owner(self._held.get(number, _NO_CLAIMS), hash_slot) is not None

    def is_repeating(self, number: str) -> bool:
        """Return whether a claim of this number is being repeated, so that other nodes may find it already."""
        return number in self._repeating

    def token_of(self, device_part: DevicePart) -> int:
        """Return the token of this node's claim, 0 for none."""
        claim = self._held.get(device_part[0], _NO_CLAIMS).get(device_part[1])
        return claim.token if claim is not None else 0

    async def claim(self, number: str, login_epoch: int, part: device.Partition) -> bool:
        """Claim a partition of a device that attaches; False when it may not.

        When this returns, call the router in the same event-loop iteration.
        """
        claim = Claim(part.layout, part.partitions, max(0, login_epoch), next(self._tokens), self.membership.me)
        device_part = number, part.partition
        self._claiming[number] += 1
        writing = asyncio.get_running_loop().create_task(
            self._write_claim(device_part, claim, is_repetition=False), name="claim"
        )
        self._writing.add(writing)
        writing.add_done_callback(self._writing.discard)
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(functools.partial(self._abandoned, device_part, claim))
            raise
        except HigherEpochAttached:
            CLAIMED.labels("stale").inc()
            return False
        except (RedisUnavailable, BatcherFull):
            # The claim is repeated when Redis is available again.
            self.unclaimed = True
            CLAIMED.labels("unclaimed").inc()
        else:
            CLAIMED.labels("claimed").inc()
        finally:
            self._claiming[number] -= 1
            if not self._claiming[number]:
                del self._claiming[number]
        self._held.setdefault(number, {})[part.partition] = claim
        return True

    def _abandoned(self, device_part: DevicePart, claim: Claim, writing: asyncio.Task[None]) -> None:
        """Release a claim whose connection closed during the claim: Redis may have it without an attached device."""
        if writing.cancelled() or isinstance(writing.exception(), HigherEpochAttached):
            return
        self._queue_release(device_part, claim)
        if self.token_of(device_part):
            # The abandoned claim has replaced the claim of a device that is still attached here.
            self.unclaimed = True

    def release(self, device_part: DevicePart) -> None:
        """Release the claim of a device that has detached."""
        claim = self._forget(device_part)
        if claim is not None:
            self._queue_release(device_part, claim)

    def _queue_release(self, device_part: DevicePart, claim: Claim) -> None:
        with contextlib.suppress(BatcherFull, BatcherClosed):
            self._releases.put((device_part, claim))

    def _forget(self, device_part: DevicePart) -> Claim | None:
        number, partition = device_part
        held = self._held.get(number)
        if held is None:
            return None
        claim = held.pop(partition, None)
        if not held:
            del self._held[number]
        return claim

    def find(self, number: str) -> asyncio.Future[Claims]:
        """Return a future with the claims of a number, without those of dead nodes; it raises `RedisUnavailable`.

        Raises `BatcherFull`.
        """
        return self._lookups.put(number)

    async def find_all(self, numbers: Sequence[str]) -> dict[str, Claims]:
        """Return the claims of many numbers. Raises `RedisUnavailable` and `BatcherFull`."""
        return dict(zip(numbers, await asyncio.gather(*map(self.find, numbers)), strict=True))

    async def renew(self) -> None:
        """Renew all claims of this node, and repeat those that Redis has lost."""
        try:
            for page in pages(self._all_held(), BATCH):
                steps = [
                    (self._key(number), (part, encode_claim(claim), CLAIM_SECONDS)) for (number, part), claim in page
                ]
                are_kept = await self.server.run_all(_RENEW, steps)
                lost = [one for one, is_kept in zip(page, are_kept, strict=True) if not is_kept]
                await asyncio.gather(*[self._repeat_claim(device_part, claim) for device_part, claim in lost])
                await asyncio.sleep(PAUSE)
        except (RedisUnavailable, BatcherFull) as error:
            log.warning("claims.not_renewed", extra={"error": str(error)})
            self.unclaimed = True

    async def repeat_claims(self) -> None:
        """Repeat all claims of this node; a claim that another node made since stays in force. Raises
        `RedisUnavailable`.
        """
        for page in pages(self._all_held(), BATCH):
            await asyncio.gather(*[self._repeat_claim(device_part, claim) for device_part, claim in page])

    def _all_held(self) -> Sequence[tuple[DevicePart, Claim]]:
        return [((number, part), claim) for number, held in self._held.items() for part, claim in held.items()]

    async def _repeat_claim(self, device_part: DevicePart, claim: Claim) -> None:
        if self.token_of(device_part) != claim.token:
            return
        number = device_part[0]
        self._repeating[number] += 1
        self.before_repeat(number)
        try:
            await self._write_claim(device_part, claim, is_repetition=True)
        except HigherEpochAttached:
            if self.token_of(device_part) == claim.token:
                self._forget(device_part)
                self.on_lost(device_part)
        else:
            if not self.token_of(device_part):
                # The device detached in the meantime.
                self._releases.put((device_part, claim))
            self.on_repeated(number)
        finally:
            self._repeating[number] -= 1
            if not self._repeating[number]:
                del self._repeating[number]

    async def _write_claim(self, device_part: DevicePart, claim: Claim, *, is_repetition: bool) -> None:
        """Write a claim to Redis. Raises `HigherEpochAttached` and `RedisUnavailable`.

        is_repetition: whether the claim was made before; then a claim of another node wins.
        """
        dead: frozenset[str] = frozenset()
        for _ in range(TRIES):
            outcome, *fields = await self._claims.put((device_part, claim, is_repetition, dead))
            others = self._read_claims(device_part[0], fields)
            if outcome == b"ok":
                for partition, former in others:
                    if former.node != self.membership.me and former.node not in dead:
                        self.on_replaced((device_part[0], partition), former)
                return
            ((_, holder),) = others
            if await self._is_alive(holder.node):
                raise HigherEpochAttached
            dead |= {holder.node}
        raise RedisUnavailable("too many nodes have died")

    def _read_claims(self, number: str, fields: Sequence[bytes]) -> Sequence[tuple[int, Claim]]:
        """Return the claims that this node's claim has replaced, or the one that prevents it."""
        found = []
        for field, value in zip(fields[::2], fields[1::2], strict=True):
            claim = decode_claim(field, value)
            if claim is not None:
                found.append(claim)
            else:
                shown = {"field": repr(field[:50]), "claim": repr(value[:100])}
                log.warning("claim.unreadable", extra={"number": number, "outcome": "overwritten", **shown})
        return found

    async def _is_alive(self, node: str) -> bool:
        if node not in self.membership.nodes:
            # The node may have joined since the last heartbeat.
            await self.membership.beat()
        return node in self.membership.nodes

    async def _claim(self, claims: Sequence[tuple[DevicePart, Claim, bool, frozenset[str]]]) -> Sequence[list[bytes]]:
        steps: list[tuple[str, Sequence[str | bytes | int]]] = []
        for (number, partition), claim, is_repetition, dead in claims:
            steps.append((self._key(number), (partition, *claim, CLAIM_SECONDS, int(is_repetition), *sorted(dead))))
        return await self.server.run_all(_CLAIM, steps)

    async def _release(self, claims: Sequence[tuple[DevicePart, Claim]]) -> Sequence[None]:
        try:
            await self.server.run_all(
                _RELEASE,
                [(self._key(number), (partition, encode_claim(claim))) for (number, partition), claim in claims],
            )
        except RedisUnavailable:
            # The claims expire. Until then, nodes that forward to this one get `Moved` as the response.
            log.debug("claims.not_released", extra={"count": len(claims)})
        return [None] * len(claims)

    async def _look_up(self, numbers: Sequence[str]) -> Sequence[Claims]:
        found = [decode_claims(fields) for fields in await self.server.read_claims([*map(self._key, numbers)])]
        nodes = {claim.node for claims in found for claim in claims.values()}
        if not nodes <= self.membership.nodes:
            # Nodes may have joined since the last heartbeat.
            await self.membership.beat()
        live = self.membership.nodes
        return [{partition: claim for partition, claim in claims.items() if claim.node in live} for claims in found]

    def _key(self, number: str) -> str:
        return self.server.key("at", number)
