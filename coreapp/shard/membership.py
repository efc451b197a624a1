"""This process among the Coreapps of the installation: under a name of its own, with signs of life, until it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import secrets
from collections.abc import Callable, Sequence

from coreapp.settings import Settings
from coreapp.shard.spreading import Holding
from tidings.runtime import service
from tidings.runtime.env import SettingsError
from tidings.storage import outages
from tidings.storage.business import layouts, nodes, shard_notes, shards
from tidings.storage.business.layouts import Layout
from tidings.storage.business.nodes import Member, Node, Replaced
from tidings.storage.business.shards import Standing
from tidings.storage.database import Connection, Database

log = logging.getLogger(__name__)

FORGET_SECONDS = 24 * 3600.0  # that a process which died without leaving is listed
PROBE_SECONDS = 0.5  # for a connection to an address that a namesake had


@dataclasses.dataclass(frozen=True, slots=True)
class Survey:
    """The installation as the database has it. live: names of processes that can take shards, this one included;
    addressed: shards that others have left something for."""

    standings: Sequence[Standing]
    live: frozenset[str]
    layout: Layout
    addressed: Sequence[int]

    def holdings(self, me: str, *, silence: float) -> list[Holding]:
        """The shards with those of their owners who are alive; silence: seconds after which another has lost its
        shard."""
        return [
            Holding(
                standing.shard,
                standing.owner if standing.owner == me or standing.silence <= silence else "",
                standing.successor,
            )
            for standing in self.standings
        ]


def list_live(members: Sequence[Member], standings: Sequence[Standing], *, silence: float) -> frozenset[str]:
    """Who can take a shard: whoever has given signs of life lately, and has lost none for want of them."""
    lost = {standing.owner for standing in standings if standing.owner and standing.silence > silence}
    return frozenset(
        member.node.name
        for member in members
        # No shard is given to it sooner than its own are taken.
        if member.is_live and member.node.name not in lost
    )


class Membership:
    """Joins, keeps giving signs of life, leaves."""

    def __init__(self, database: Database, settings: Settings, address: Callable[[], str]) -> None:
        """address(): where Webapps reach this process, `host:port`."""
        self._database = database
        self._lease_seconds = settings.lease_seconds
        self._name = settings.node
        self._interval = settings.heartbeat_seconds
        self._address = address
        self._incarnation = secrets.token_hex(8)
        # Done, with the error, when another process has this one's name.
        self.replaced: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def _node(self) -> Node:
        return Node(self._name, self._incarnation, self._address(), self._interval)

    async def join(self, stop: asyncio.Event) -> None:
        """Be listed. Raises `SettingsError` while a process of the same name is alive."""
        while not stop.is_set():
            try:
                await self._wait_for_namesake()
                await self._database.commit(self._list)
                return
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("membership.unreachable", extra={"error": repr(error)})
                await service.wait_for(stop, self._interval)

    async def keep(self, stop: asyncio.Event) -> None:
        """Give signs of life until `stop`, or until another process has the name."""
        while not await service.wait_for(stop, self._interval):
            try:
                await self._database.commit(functools.partial(nodes.beat, node=self._node))
            except Replaced as error:
                log.error("membership.replaced", extra={"node": self._name})
                self.replaced.set_exception(error)
                self.replaced.exception()
                return
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("membership.not_renewed", extra={"error": repr(error)})

    async def survey(self) -> Survey:
        """Ask who is there, and who owns what."""
        async with self._database.reading() as connection:
            standings = await shards.list_standings(connection)
            members = await nodes.list_members(connection)
            layout = await layouts.find(connection)
            addressed = await shard_notes.list_addressed(connection) if len(standings) > 1 else ()
        live = list_live(members, standings, silence=self._lease_seconds)
        return Survey(standings, live | {self._name}, layout, addressed)

    async def leave(self) -> None:
        """Not be listed any more."""
        try:
            await self._database.commit(functools.partial(nodes.leave, node=self._node))
        except Exception as error:
            log.warning("membership.not_left", extra={"error": repr(error)})

    async def _list(self, connection: Connection) -> None:
        await nodes.forget_lost(connection, FORGET_SECONDS)
        await nodes.join(connection, self._node)

    async def _wait_for_namesake(self) -> None:
        """Return when no other process of this name is alive. Raises `SettingsError` when one is.

        One that died is told from one that lives at once where its address says so: it is the one that we listen on
        ourselves, or nobody listens there. Elsewhere it is given the time of two heartbeats to show a sign of life.
        """
        known = await self._namesake()
        if known is None or known.silence > self._lease_seconds:
            return
        if known.node.address == self._address() or await _is_deserted(known.node.address):
            return
        log.info("membership.namesake", extra={"node": self._name, "address": known.node.address})
        await asyncio.sleep(max(0.0, 2 * known.node.interval + nodes.MARGIN - known.silence))
        now = await self._namesake()
        if now is not None and (now.node != known.node or now.heartbeat_at != known.heartbeat_at):
            raise SettingsError(
                f"another Coreapp of this installation runs under the name {self._name}, at {now.node.address}: "
                "give each a COREAPP_HOSTNAME of its own"
            )

    async def _namesake(self) -> Member | None:
        async with self._database.reading() as connection:
            return await nodes.find(connection, self._name)


async def _is_deserted(address: str) -> bool:
    """Is it sure that no process listens there?"""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
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
