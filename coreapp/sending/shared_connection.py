"""Connections to the network that the shards of a process share, each with shards of different numbers.

With a connection for each shard, the messages that one commit releases for 20 numbers take 20 writes here and 20 reads
at the network.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import ParamSpec, Protocol, TypeAlias

from prometheus_client import Histogram

from tidings.client.connection import DeviceConnection, Observer
from tidings.client.listener import DeviceListener
from tidings.client.transports import Dial
from tidings.wire.device import Deliver, PreKeysLow, Send

CALLS = Histogram(
    "tidings_upstream_seconds",
    "Calls to the network",
    ["call"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 5, 30),
)
BATCHES = Histogram(
    "tidings_upstream_batch_items",
    "Numbers per check or fetch, and envelopes per acknowledgement",
    ["call"],
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000),
)

_acknowledgements, _sends = BATCHES.labels("send"), CALLS.labels("send")


class ConnectionMember(Protocol):
    """Shard of a number on a connection. It receives the events of a `DeviceListener` that concern it."""

    def attached(self, number: str) -> None: ...

    def detached(self, number: str, reason: str, detail: str) -> None: ...

    def lost(self, reason: str) -> None: ...

    def delivered(self, delivery: Deliver) -> None: ...

    def accepted(self, sent: Sequence[str]) -> None: ...

    def refused(self, sent: str, reason: str, detail: str) -> None: ...

    def held_back(self, sent: str) -> None: ...

    def prekeys_low(self, notice: PreKeysLow) -> None: ...

    def ended(self, error: BaseException) -> None:
        """Called when the connection has ended with an error and is not opened again."""
        ...


Args = ParamSpec("Args")
# The shard that sent an envelope, and the envelope's id.
SentBy: TypeAlias = tuple[ConnectionMember, str]


class SharedConnection(DeviceListener[SentBy]):
    """Connection with one shard of each of its numbers. It is open while it has a member."""

    def __init__(self, network: DeviceConnection[SentBy]) -> None:
        self.network = network
        self._members: dict[str, ConnectionMember] = {}
        # Numbers that have left, until the network has confirmed it.
        self._leaving: set[str] = set()
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        # Id and send time of the one envelope being timed, as a sample of all; the id is empty while none is.
        self._timed, self._timed_at = "", 0.0

    @property
    def is_shared(self) -> bool:
        """Return whether several numbers are on the connection."""
        return len(self._members) > 1

    @property
    def is_over(self) -> bool:
        """Return whether the last member has left."""
        return self._stop.is_set()

    def has_room(self, number: str) -> bool:
        """Return whether a shard of the number can join. Only one can be here, and an earlier one must have left."""
        return not self.is_over and number not in self._members and number not in self._leaving

    def join(self, number: str, member: ConnectionMember) -> None:
        """Add a shard of a number, which then logs in. Opens the connection for the first one."""
        self._members[number] = member
        if self._running is None:
            self._running = asyncio.create_task(self.network.run(self, self._stop), name="network connection")
            self._running.add_done_callback(self._ended)

    async def leave(self, number: str) -> None:
        """Remove the number's shard: log it out, or close the connection after the last one."""
        del self._members[number]
        self._timed = ""
        if self._members:
            self._leaving.add(number)
            self.network.log_out(number)
        elif self._running is not None:
            self._stop.set()
            await asyncio.wait([self._running])

    def send(self, envelope: Send, member: ConnectionMember) -> None:
        """Send an envelope of a member; the outcome is reported to it."""
        if not self._timed:
            self._timed, self._timed_at = envelope.id, time.perf_counter()
        if not self.network.send(envelope, (member, envelope.id)):
            self._not_timed(envelope.id)

    def _ended(self, running: asyncio.Task[None]) -> None:
        error = running.exception() if not running.cancelled() else asyncio.CancelledError()
        if error is not None:
            self._stop.set()
            for member in self._members.values():
                member.ended(error)

    # Methods of `DeviceListener`, called by the connection.

    def attached(self, number: str) -> None:
        member = self._members.get(number)
        if member is not None:
            _notify(member, member.attached, number)

    def detached(self, number: str, reason: str, detail: str) -> None:
        self._timed = ""
        member = self._members.get(number)
        if member is not None:
            _notify(member, member.detached, number, reason, detail)

    def logged_out(self, number: str) -> None:
        self._leaving.discard(number)

    def lost(self, reason: str) -> None:
        self._leaving.clear()
        self._timed = ""
        for member in list(self._members.values()):
            _notify(member, member.lost, reason)

    def delivered(self, delivery: Deliver) -> None:
        member = self._members.get(delivery.to)
        if member is not None:
            _notify(member, member.delivered, delivery)

    def accepted(self, sent: Sequence[SentBy]) -> None:
        _acknowledgements.observe(len(sent))
        found: dict[ConnectionMember, list[str]] = {}
        for member, envelope_id in sent:
            found.setdefault(member, []).append(envelope_id)
            if envelope_id == self._timed:
                _sends.observe(time.perf_counter() - self._timed_at)
                self._timed = ""
        for member, ids in found.items():
            _notify(member, member.accepted, ids)

    def refused(self, sent: SentBy, reason: str, detail: str) -> None:
        member, envelope_id = sent
        self._not_timed(envelope_id)
        _notify(member, member.refused, envelope_id, reason, detail)

    def held_back(self, sent: SentBy) -> None:
        member, envelope_id = sent
        self._not_timed(envelope_id)
        _notify(member, member.held_back, envelope_id)

    def _not_timed(self, envelope_id: str) -> None:
        if envelope_id == self._timed:
            self._timed = ""

    def prekeys_low(self, notice: PreKeysLow) -> None:
        member = self._members.get(notice.number)
        if member is not None:
            _notify(member, member.prekeys_low, notice)


def _notify(member: ConnectionMember, call: Callable[Args, None], *args: Args.args, **named: Args.kwargs) -> None:
    """Pass on an event. An error of one shard does not end the connection of the others."""
    try:
        call(*args, **named)
    except Exception as error:
        member.ended(error)


class NetworkConnections:
    """Connections of a process: as many as it has shards of one number, at least."""

    def __init__(self, dial: Dial, *, name: str, backoff: tuple[float, float], observe: Observer) -> None:
        """Create it without a connection.

        name: name of the network in log events
        backoff, observe: as for `DeviceConnection`
        """
        self._dial = dial
        self._name = name
        self._backoff = backoff
        self._observe = observe
        self._connections: list[SharedConnection] = []

    def __len__(self) -> int:
        """Return the number of connections that have a member."""
        return sum(not connection.is_over for connection in self._connections)

    def join(self, number: str, member: ConnectionMember) -> SharedConnection:
        """Add a shard of a number to the first connection that has room, or to a new one. It must leave it later."""
        self._connections = [connection for connection in self._connections if not connection.is_over]
        found = next((connection for connection in self._connections if connection.has_room(number)), None)
        if found is None:
            network = DeviceConnection[SentBy](
                self._dial, name=self._name, backoff=self._backoff, observe=self._observe
            )
            found = SharedConnection(network)
            self._connections.append(found)
        found.join(number, member)
        return found
