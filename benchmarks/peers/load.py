"""Load on one job queue, generated in its process. Uses only the standard library, to run in any environment."""

from __future__ import annotations

import array
import asyncio
import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

JOB_BYTES = 200  # bytes of a job's body
# Roles of a process: clients and workers, or one of both.
BOTH, ENQUEUE, WORK = "both", "enqueue", "work"
TIMEOUT = 60.0  # seconds until all enqueued jobs must have been worked

Request = Mapping[str, Any]
Enqueue = Callable[[int, str], Awaitable[object]]
Left = Callable[[], Awaitable[int]]


class Unfinished(Exception):
    """Jobs were lost or take too long; `str()` has the counts."""


def summarise(times: Sequence[float]) -> dict[str, float] | None:
    """Summarise seconds in milliseconds, with percentiles by nearest rank; None for no times."""
    if not times:
        return None
    ordered = sorted(times)
    found = {f"p{p}": ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)] for p in (50, 90, 95, 99)}
    found |= {"mean": sum(ordered) / len(ordered), "min": ordered[0], "max": ordered[-1]}
    return {"count": len(ordered), **{name: round(value * 1000, 3) for name, value in found.items()}}


def per_second(moments: Sequence[float]) -> list[int]:
    """Count the moments, in seconds since the start, by second."""
    counts = [0] * (int(max(moments, default=-1.0)) + 1)
    for moment in moments:
        counts[int(moment)] += 1
    return counts


def role() -> str:
    """Return the role of this process, from the variable PEER_ROLE."""
    return os.environ.get("PEER_ROLE", BOTH)


def is_worker() -> bool:
    """Return whether this process works jobs."""
    return role() != ENQUEUE


@dataclasses.dataclass(slots=True)
class JobRun:
    """Clients that enqueue one job after the other, each durable before the next, and workers that record them.

    Clients and workers can be in two processes: then a request of the clients' process only enqueues, and one of the
    workers' process, with the number of jobs to `expect`, only waits for them. Both write pairs of job number and Unix
    nanoseconds into the file `record` of the request, as 64-bit integers in the machine's byte order.
    """

    role: str = dataclasses.field(default_factory=role)
    began: dict[int, float] = dataclasses.field(default_factory=dict)
    waits: list[float] = dataclasses.field(default_factory=list)
    done: list[float] = dataclasses.field(default_factory=list)
    repeated: int = 0
    unknown: int = 0
    arrived: dict[int, int] = dataclasses.field(default_factory=dict)  # Unix nanoseconds, in the workers' process
    _next: int = 0

    def work(self, number: int) -> None:
        """Record that a worker received a job."""
        if self.role == WORK:
            self.repeated += number in self.arrived
            self.arrived.setdefault(number, time.time_ns())
            return
        now = time.perf_counter()
        began = self.began.get(number)
        if began is None:
            self.unknown += 1
        elif not began:
            self.repeated += 1
        else:
            self.waits.append(now - began)
            self.began[number] = 0.0
            self.done.append(now)

    async def drive(self, request: Request, enqueue: Enqueue, left: Left) -> dict[str, Any]:
        """Enqueue for the requested time, then wait until all jobs are worked and the store is empty.

        Raises `Unfinished` and whatever `enqueue` and `left` raise.
        """
        if self.role == WORK:
            return await self._collect(request, left)
        body, took = "x" * JOB_BYTES, list[float]()
        record = array.array("q")
        started = time.perf_counter()

        async def client() -> None:
            while time.perf_counter() < started + request["seconds"]:
                self._next += 1
                number, began = self._next, time.perf_counter()
                self.began[number] = began
                record.extend((number, time.time_ns()))
                await enqueue(number, body)
                took.append(time.perf_counter() - began)

        await asyncio.gather(*(client() for _ in range(request["clients"])))
        if self.role == ENQUEUE:
            self.began = {}
            _write(request["record"], record)
            return {"jobs": len(took), "enqueue_ms": summarise(took)}
        remaining = await self._drain(len(took), left)
        figures = {
            "jobs": len(took),
            "worked": len(self.waits),
            "repeated": self.repeated,
            "unknown": self.unknown,
            "left": remaining,
            "seconds": max(self.done, default=started) - started,
            "per_second": per_second([moment - started for moment in self.done]),
            "enqueue_ms": summarise(took),
            "work_ms": summarise(self.waits),
        }
        self.began, self.waits, self.done, self.repeated, self.unknown = {}, [], [], 0, 0
        return figures

    async def _collect(self, request: Request, left: Left) -> dict[str, Any]:
        """Wait until the expected jobs are worked and the store is empty. Raises `Unfinished`."""
        remaining = await self._drain(request["expect"], left)
        _write(request["record"], array.array("q", [each for pair in self.arrived.items() for each in pair]))
        figures = {"worked": len(self.arrived), "repeated": self.repeated, "left": remaining}
        self.arrived, self.repeated = {}, 0
        return figures

    async def _drain(self, jobs: int, left: Left) -> int:
        deadline = time.perf_counter() + TIMEOUT
        while (worked := max(len(self.waits), len(self.arrived))) < jobs:
            if time.perf_counter() > deadline:
                raise Unfinished(f"of {jobs} jobs {worked} were worked")
            await asyncio.sleep(0.002)
        # Polled, because these stores send no notification.
        for _ in range(int(TIMEOUT / 0.01)):
            if not (remaining := await left()):
                break
            await asyncio.sleep(0.01)
        return remaining


def _write(path: str, record: array.array[int]) -> None:
    with open(path, "wb") as file:
        record.tofile(file)


async def serve_requests(carry_out: Callable[[Request], Awaitable[Mapping[str, Any]]]) -> None:
    """Report readiness, then carry out requests, one JSON object per line, until standard input ends."""
    lines = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), os.fdopen(0, "rb", closefd=False))
    _print_line({"ready": True})
    async for line in lines:
        _print_line(await carry_out(json.loads(line)))


def _print_line(what: Mapping[str, Any]) -> None:
    print(json.dumps(what), flush=True)


def store() -> str:
    """Return the URL of the store, the first argument of a program."""
    return sys.argv[1]
