"""Processes of the installation with their states and last heartbeats."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tidings.installation import process_records
from tidings.installation.process_records import FoundRecord, ProcessRecord
from tidings.storage.business import console_views, nodes, shard_blocks, shards
from tidings.storage.business.nodes import NodeRecord
from tidings.storage.business.shards import Owner
from tidings.storage.database import Database
from tidings.wire import core
from webapp.coreapps.interfaces import AllCoreapps
from webapp.http.errors import CoreappUnavailable

log = logging.getLogger(__name__)

# Seconds that each Coreapp has to respond.
_TIMEOUT = 2.0

WEBAPP, COREAPP, NETWORK = "webapp", "coreapp", "network"
# Kinds of processes that have no heartbeats in the tables, but a record in the data directory of their host.
RECORDED = (NETWORK, "robots", "handset")
# States, as `strings.toml` names them.
LIVE, SILENT, UNREACHED, STANDBY, AWAY, UNKNOWN = "live", "silent", "unreached", "standby", "away", "unknown"
KILLED = "killed"


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessEntry:
    """One process, or the connection to the network."""

    kind: str  # `WEBAPP`, `COREAPP` or one of `RECORDED`
    name: str
    state: str
    is_good: bool
    age: float | None = None  # seconds since its start
    heartbeat_age: float | None = None  # seconds
    detail: str = ""


class ProcessList:
    """Reads processes from the tables of heartbeats and from the records of this host."""

    def __init__(self, database: Database, coreapps: AllCoreapps, data_dir: Path) -> None:
        self._database = database
        self._coreapps = coreapps
        self._data_dir = data_dir
        self._unreadable: Mapping[Path, str] = {}

    async def read(self) -> Sequence[ProcessEntry]:
        """Return Webapps, Coreapps, the connection to the network, and its nodes, robots and handsets of this host."""
        async with self._database.reading() as connection:
            webapps = await console_views.list_webapps(connection)
            members = await nodes.list_members(connection)
            owners = await shards.list_owners(connection)
        health = await self._health()
        found = [
            ProcessEntry(
                WEBAPP, each.node, LIVE if each.is_live else SILENT, each.is_live, each.age, each.heartbeat_age
            )
            for each in webapps
        ]
        found += [_coreapp(member, owners, health) for member in members]
        recorded, unreadable = await asyncio.to_thread(_list_recorded, self._data_dir)
        for path, error in unreadable.items():
            if path not in self._unreadable:
                log.warning("console.record_unreadable", extra={"path": str(path), "error": error})
        self._unreadable = unreadable
        return [*found, _network(health), *recorded]

    async def _health(self) -> Mapping[str, core.Health | None]:
        """Return the response of each Coreapp by its address; `None` when it did not respond."""
        responses = await self._coreapps.call_each(lambda n: core.GetHealth(n=n), core.Health, timeout=_TIMEOUT)
        return {
            coreapp.address: None if isinstance(response, CoreappUnavailable) else response
            for coreapp, response in responses
        }


class NumberShards:
    """Shards of each number."""

    def __init__(self, database: Database, block_of: Callable[[str], int | None]) -> None:
        """block_of: returns the shard block of a number; `None` for an unknown one"""
        self._database = database
        self.block_of = block_of

    async def of(self, account: str) -> Sequence[int]:
        """Return the shards of a number; none for an unknown one."""
        block = self.block_of(account)
        if block is None:
            return []
        async with self._database.reading() as connection:
            owners = await shards.list_owners(connection)
        return [owner.shard for owner in owners if shard_blocks.block_of(owner.shard) == block]


def _coreapp(member: NodeRecord, owners: Sequence[Owner], health: Mapping[str, core.Health | None]) -> ProcessEntry:
    owned = [owner.shard for owner in owners if owner.node == member.node.name]
    response = health.get(member.node.address)
    detail = ", ".join(map(str, owned))
    if not member.is_live:
        state = SILENT
    elif response is None:
        state = UNREACHED
    else:
        state = LIVE if owned else STANDBY
    is_good = state in (LIVE, STANDBY)
    return ProcessEntry(COREAPP, member.node.name, state, is_good, member.age, member.heartbeat_age, detail)


def _list_recorded(data_dir: Path) -> tuple[Sequence[ProcessEntry], Mapping[Path, str]]:
    """Return the recorded processes, oldest first, and an error for each record that cannot be read."""
    records: list[FoundRecord] = []
    unreadable: dict[Path, str] = {}
    for path in process_records.list_paths(data_dir):
        try:
            one = process_records.read(path)
        except OSError as error:
            unreadable[path] = str(error)
        else:
            records += [one] if one is not None else []
    entries = [
        _recorded(found.record, found)
        for found in sorted(records, key=lambda one: one.started_at)
        if found.record is not None and found.record.process in RECORDED
    ]
    return entries, unreadable


def _recorded(record: ProcessRecord, found: FoundRecord) -> ProcessEntry:
    name = f"{record.process} {record.pid}"
    if not found.is_running:
        return ProcessEntry(record.process, name, KILLED, False, None, None, record.version)
    # Its heartbeat has no age: the process holds a lock while it runs.
    return ProcessEntry(record.process, name, LIVE, True, time.time() - found.started_at, 0.0, record.version)


def _network(health: Mapping[str, core.Health | None]) -> ProcessEntry:
    states = [response.gateway_status for response in health.values() if response is not None and response.shards]
    if not states:
        return ProcessEntry(NETWORK, NETWORK, UNKNOWN, False)
    worst = next((state for state in states if state != "connected"), "connected")
    return ProcessEntry(NETWORK, NETWORK, LIVE if worst == "connected" else AWAY, worst == "connected", detail=worst)
