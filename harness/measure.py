"""What a run has cost: CPU seconds of each process, commits, memory; and what it achieved: rates and latencies."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
from collections.abc import Mapping, Sequence

import psutil

from harness import ledger
from harness.installation import Installation
from harness.mariadb import MariaDB
from harness.processes import usage
from harness.sink import Record

# The part of a run that counts as its steady state: without the first and the last tenth.
STEADY = (0.1, 0.9)


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The counters at one moment. cpu: seconds by process; peak_rss: bytes by process.

    commits:   writing transactions by family of tables, as Coreapp and network count them.
    statements: COMMIT statements that the database server has seen, those that end a reading included.
    log_bytes:  written to the server's log.
    busy:      CPU seconds of everything on this machine.
    """

    cpu: Mapping[str, float]
    peak_rss: Mapping[str, int]
    commits: Mapping[str, float]
    statements: int
    log_bytes: int
    busy: float


async def read(installation: Installation, sink_pid: int) -> Reading:
    """Read every counter now."""
    pids = {**installation.pids(), "sink": sink_pid, "load": os.getpid()}
    usages = {name: usage(pid) for name, pid in pids.items()}
    machine = psutil.cpu_times()
    commits = await asyncio.to_thread(_commits, installation)
    status = await asyncio.to_thread(_status, installation.mariadb) if installation.mariadb else {}
    return Reading(
        {name: used.cpu for name, used in usages.items()},
        {name: used.peak_rss for name, used in usages.items()},
        commits,
        int(status.get("Com_commit", 0)),
        int(status.get("Innodb_os_log_written", 0)),
        sum(machine) - machine.idle - getattr(machine, "iowait", 0.0) - getattr(machine, "guest", 0.0),
    )


def metric(text: str, name: str, labels: str = "") -> float:
    """The sum of one metric over the labels that contain `labels`, from Prometheus text; 0 when it is not there."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if (line.startswith((name + " ", name + "{"))) and labels in line
    )


def _commits(installation: Installation) -> dict[str, float]:
    texts = installation.metrics()
    return {
        family: metric(texts[process], "tidings_db_commits_total", f'family="{family}"')
        for family, process in (("business", "coreapp"), ("network", "network"))
    }


def _status(server: MariaDB) -> dict[str, str]:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_commit', 'Innodb_os_log_written')")
        return {str(name): str(value) for name, value in cursor.fetchall()}


@dataclasses.dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second of which all three callbacks have arrived.

    whole:  from the first request to the last callback; steady: in the middle 80 % of the messages.
    """

    whole: float
    steady: float
    seconds: float


def rates(first_request: float, records: Sequence[Record]) -> Rates:
    """first_request: Unix seconds."""
    done = sorted(completion_times(records).values())
    low, high = (done[min(len(done) - 1, int(len(done) * part))] for part in STEADY)
    steady = len(done) * (STEADY[1] - STEADY[0]) / max(high - low, 1e-9)
    seconds = done[-1] - first_request
    return Rates(len(done) / seconds, steady, seconds)


def completion_times(records: Sequence[Record]) -> dict[str, float]:
    """For each message with all three statuses, when the last of them first came (Unix seconds)."""
    arrivals: dict[str, dict[str, float]] = {}
    for record in records:
        if record.status in ledger.STATUSES and record.answered == 200:
            arrivals.setdefault(record.message_id, {}).setdefault(record.status, record.time)
    return {
        message_id: max(times.values()) for message_id, times in arrivals.items() if len(times) == len(ledger.STATUSES)
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95, p99 and the greatest, by nearest rank."""
    ordered = sorted(values)
    found = {f"p{p}": ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)] for p in (50, 95, 99)}
    return {**found, "max": ordered[-1]}
