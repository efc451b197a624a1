"""Membership of this process among the Coreapps of the installation: joins under a unique name, sends heartbeats,
leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence

from coreapp.settings import Settings
from coreapp.shard import reach
from coreapp.shard.balancing import Holding
from coreapp.shard.reach import CoreappReach
from tidings.aio import service
from tidings.aio.membership import Membership
from tidings.config.env import SettingsError
from tidings.storage import outages
from tidings.storage.business import cross_shard_messages, layouts, nodes, numbers, shards, webapp_unreached
from tidings.storage.business.layouts import Layout
from tidings.storage.business.nodes import CoreappNode, NodeRecord, ProcessReplaced
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.business.shards import ShardState
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

FORGET_SECONDS = 24 * 3600.0  # seconds that a crashed process stays listed
PROBE_SECONDS = 0.5  # timeout in seconds of a connection to the address of a process with the same name


@dataclasses.dataclass(frozen=True, slots=True)
class Survey:
    """State of the installation as read from the database."""

    states: Sequence[ShardState]
    live: frozenset[str]  # names of processes that can take shards, including this one
    layouts: Mapping[int, Layout]  # layouts by shard block
    numbers: Sequence[BusinessNumber]  # numbers not being removed; empty before the first start
    addressed: Sequence[int]  # shards with unread cross-shard messages
    reach: CoreappReach  # live processes that Webapps do not reach

    @property
    def places(self) -> frozenset[str]:
        """Live processes that may be assigned shards."""
        return self.reach.places(self.live)

    @property
    def changing(self) -> frozenset[int]:
        """Shard blocks of numbers whose number of shards is to be changed."""
        return frozenset(block for block, layout in self.layouts.items() if layout.is_changing)

    def holdings(self, me: str, *, heartbeat_timeout: float) -> list[Holding]:
        """Return the shards with those of their owners that are alive.

        me: name of this process, whose shards count as owned in any case
        heartbeat_timeout: seconds without a heartbeat after which an owner has lost its shard
        """
        return [
            Holding(
                state.shard,
                state.owner if state.owner == me or state.heartbeat_age <= heartbeat_timeout else "",
                state.successor,
            )
            for state in self.states
        ]


def list_live(
    members: Sequence[NodeRecord], states: Sequence[ShardState], *, heartbeat_timeout: float
) -> frozenset[str]:
    """Return the processes that can take a shard: those with a recent heartbeat that have lost no shard for lack of
    heartbeats.
    """
    lost = {state.owner for state in states if state.owner and state.heartbeat_age > heartbeat_timeout}
    return frozenset(
        member.node.name
        for member in members
        # Such a process gets no shard before its own are taken over.
        if member.is_live and member.node.name not in lost
    )


class CoreappMembership(Membership):
    """Joins the installation, sends heartbeats, and leaves. `run` raises `ProcessReplaced` when another process takes
    the name.
    """

    def __init__(self, database: Database, settings: Settings, address: Callable[[], str]) -> None:
        self.interval = settings.heartbeat_seconds
        self._database = database
        self._settings = settings
        self._address = address  # returns the address at which Webapps connect, `host:port`
        self._incarnation = secrets.token_hex(8)

    @property
    def _node(self) -> CoreappNode:
        return CoreappNode(self._settings.node, self._incarnation, self._address(), self.interval)

    async def join(self, stop: asyncio.Event) -> None:
        """Join the list of processes. Raises `SettingsError` while a process of the same name is alive."""
        while not stop.is_set():
            try:
                await self._wait_for_process_of_same_name()
                await self._database.commit(self._list)
                return
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("membership.unreachable", extra={"error": repr(error)})
                await service.wait_for(stop, self.interval)

    async def renew(self) -> None:
        await self._database.commit(functools.partial(nodes.beat, node=self._node))

    def missed(self, error: Exception) -> None:
        if isinstance(error, ProcessReplaced):
            log.error("membership.replaced", extra={"node": self._settings.node})
        if not outages.is_outage(error):
            raise error
        super().missed(error)

    async def survey(self) -> Survey:
        """Read the live processes and the owners of all shards."""
        async with self._database.reading() as connection:
            states = await shards.list_states(connection)
            members = await nodes.list_members(connection)
            found = await layouts.list_layouts(connection)
            served = await numbers.list_served(connection)
            addressed = await cross_shard_messages.list_addressed(connection) if len(states) > 1 else ()
            reports = await webapp_unreached.list_reports(connection)
        live = list_live(members, states, heartbeat_timeout=self._settings.lease_seconds) | {self._settings.node}
        return Survey(states, live, found, served, addressed, reach.evaluate(reports, members, live))

    async def remove(self) -> None:
        await self._database.commit(functools.partial(nodes.leave, node=self._node))

    async def _list(self, connection: Connection) -> None:
        await nodes.delete_lost(connection, FORGET_SECONDS)
        await nodes.join(connection, self._node)

    async def _wait_for_process_of_same_name(self) -> None:
        """Wait until it is certain that no other process of this name is alive. Raises `SettingsError` if one is.

        A process is known to be dead at once if its address is the one that we listen on, or if no process listens
        there. Otherwise it gets the time of two heartbeats to send one.
        """
        known = await self._find_process_of_same_name()
        if known is None or known.heartbeat_age > self._settings.lease_seconds:
            return
        if known.node.address == self._address() or await _has_no_listener(known.node.address):
            return
        log.info("membership.namesake", extra={"node": self._settings.node, "address": known.node.address})
        await asyncio.sleep(max(0.0, 2 * known.node.interval + nodes.MARGIN - known.heartbeat_age))
        now = await self._find_process_of_same_name()
        if now is not None and (now.node != known.node or now.heartbeat_at != known.heartbeat_at):
            raise SettingsError(
                f"another Coreapp of this installation runs under the name {now.node.name}, at {now.node.address}: "
                "give each its own COREAPP_HOSTNAME"
            )

    async def _find_process_of_same_name(self) -> NodeRecord | None:
        async with self._database.reading() as connection:
            return await nodes.find(connection, self._settings.node)


async def _has_no_listener(address: str) -> bool:
    """Return whether it is certain that no process listens at the address."""
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit()):
        return False
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PROBE_SECONDS):
            try:
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            except ConnectionRefusedError:
                return True
            except OSError:
                return False
            writer.transport.abort()
    return False
