"""Job queues: 64 clients enqueue jobs one by one, workers in the same or another process record their arrival."""

from __future__ import annotations

import array
import asyncio
import dataclasses
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import install, load, stores
from benchmarks.peers.process import Program, TreeSampler
from benchmarks.rig import summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.summary import Summary
from harness.mariadb import free_port
from harness.sink_process import SinkProcess

CLIENTS = 64
WARM_UP_SECONDS = 2.0
# Secret with which all posts are signed, `own.SIGNING_KEY`.
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


# Latencies from the start of enqueueing: until the job is on disk, and until a worker has it or its post is answered.
ENQUEUED, WORKED = "enqueued", "worked"


@dataclasses.dataclass(frozen=True, slots=True)
class Queue:
    """Job queue."""

    name: str
    title: str
    store: Callable[[], stores.Store]
    # (store URL, webhook URL) -> command of the process with the clients and workers
    command: Callable[[str, str], Sequence[str | Path]]
    note: str  # for readers of the report: how the queue is used here
    apart: str = ""  # the same with clients and workers in two processes, if that differs


def _python(program: str) -> Callable[[str, str], Sequence[str | Path]]:
    return lambda url, _post: [install.PYTHON, "-m", f"benchmarks.peers.programs.{program}", url]


def _go(program: str, *more: str) -> Callable[[str, str], Sequence[str | Path]]:
    return lambda url, post: [install.PEERS, program, "-store", url, *(("-post", post) if post else ()), *more]


def _own(what: str) -> Callable[[str, str], Sequence[str | Path]]:
    return lambda url, post: [sys.executable, "-m", "benchmarks.peers.own", what, url, *((post,) if post else ())]


_RIVER_NOTE = "fetches at most every 100 ms, as it comes; finished jobs stay as rows until they are cleaned up"
_COOLDOWN = ("-cooldown", "2ms")
_RIVER_FAST_NOTE = "fetches every 2 ms, as its own benchmark does"

JOBS = (
    Queue(
        "tidings",
        "Tidings' journal",
        stores.DurableMariaDB,
        _own("jobs"),
        "jobs that arrive while a commit is in flight share the next one; one owner works from memory",
        "the clients call the owner over a connection; the owner commits, answers, and works from memory",
    ),
    Queue("river", "River (Go)", stores.PostgreSQL, _go("river"), _RIVER_NOTE),
    Queue("river-2ms", "River (Go), 2 ms", stores.PostgreSQL, _go("river", *_COOLDOWN), _RIVER_FAST_NOTE),
    Queue(
        "jetstream",
        "NATS JetStream (Go client)",
        stores.Nats,
        _go("jetstream"),
        "a work queue; workers' acknowledgements are not waited for",
    ),
    Queue("saq", "saq (Python)", stores.DurableRedis, _python("saq_jobs"), "no result is kept"),
    Queue(
        "arq",
        "arq (Python)",
        stores.DurableRedis,
        _python("arq_jobs"),
        "looks for jobs every 5 ms instead of 500; no result is kept",
    ),
    Queue(
        "pgqueuer",
        "PgQueuer (Python)",
        stores.PostgreSQL,
        _python("pgqueuer_jobs"),
        "a pool of 32 connections; batches of 100",
    ),
    Queue(
        "procrastinate",
        "Procrastinate (Python)",
        stores.PostgreSQL,
        _python("procrastinate_jobs"),
        "finished jobs are deleted",
    ),
)

# A post is a job here. River and JetStream with a posting worker are typical ways to build it oneself.
_POSTS = "24"
WEBHOOKS = (
    Queue(
        "tidings",
        "Tidings' callback queue",
        stores.DurableMariaDB,
        _own("webhooks"),
        "stored bodies are sealed (AES-GCM); 24 posts at a time",
    ),
    Queue(
        "river-2ms",
        "River (Go), 2 ms, with a worker that posts",
        stores.PostgreSQL,
        _go("river", "-workers", _POSTS, *_COOLDOWN),
        f"{_RIVER_FAST_NOTE}: it takes 24 jobs in each; 24 posts at a time",
    ),
    Queue(
        "jetstream",
        "NATS JetStream with a worker that posts (Go)",
        stores.Nats,
        _go("jetstream", "-workers", _POSTS),
        "24 posts at a time",
    ),
)


async def measure(queue: Queue, seconds: float, directory: Path, *, posts: bool) -> Run:
    """Measure one run on a fresh store. Raises `RunFailed` and `ProcessEnded`."""
    store = queue.store()
    try:
        await asyncio.to_thread(store.start)
        if not posts:
            return await _run(queue, store, seconds, directory, None)
        async with SinkProcess(directory, SECRET) as sink:
            return await _run(queue, store, seconds, directory, sink)
    finally:
        await asyncio.to_thread(store.remove)


async def measure_apart(queue: Queue, seconds: float, directory: Path) -> Run:
    """Measure one run with clients and workers in two processes, on a fresh store.

    Raises `RunFailed` and `ProcessEnded`.
    """
    store = queue.store()
    try:
        await asyncio.to_thread(store.start)
        return await _run_apart(queue, store, seconds, directory)
    finally:
        await asyncio.to_thread(store.remove)


async def _run_apart(queue: Queue, store: stores.Store, seconds: float, directory: Path) -> Run:
    name = f"apart-{queue.name}"
    link = {"PEER_LINK": f"127.0.0.1:{free_port()}"}
    command = queue.command(store.url, "")
    records = {part: directory / f"{part}.record" for part in (load.ENQUEUE, load.WORK)}
    async with (
        # The workers' process creates tables and streams.
        Program(f"{name}-workers", command, directory, {"PEER_ROLE": load.WORK, **link}) as workers,
        Program(f"{name}-clients", command, directory, {"PEER_ROLE": load.ENQUEUE, **link}) as clients,
    ):

        async def load_for(duration: float) -> tuple[dict[str, Any], dict[str, Any]]:
            enqueued = await clients.request(seconds=duration, clients=CLIENTS, record=str(records[load.ENQUEUE]))
            worked = await workers.request(expect=enqueued["jobs"], record=str(records[load.WORK]))
            return enqueued, worked

        await load_for(WARM_UP_SECONDS)
        pids = {"store": store.pid, "clients": clients.pid, "workers": workers.pid}
        async with TreeSampler(pids) as watched:
            enqueued, worked = await load_for(seconds)
    found = merge(*(read_record(records[part]) for part in (load.ENQUEUE, load.WORK)))
    reconcile(
        name, {"jobs": enqueued["jobs"], "worked": found.worked, "unknown": found.unknown, "left": worked["left"]}
    )
    return Run(
        name=name,
        title=f"{queue.title}, two processes",
        count=enqueued["jobs"],
        unit="jobs",
        seconds=found.seconds,
        rate=enqueued["jobs"] / found.seconds,
        latencies={ENQUEUED: Summary(**enqueued["enqueue_ms"]), WORKED: summary.summarise(found.waits)},
        throughput=found.per_second,
        samples=watched.samples,
        parameters={"durability": store.durability, "note": queue.apart or queue.note},
        details={"repeated": worked["repeated"]},
    )


def read_record(path: Path) -> dict[int, int]:
    """Return Unix nanoseconds by job number, from a file of `load.JobRun`."""
    found = array.array("q", path.read_bytes())
    return dict(zip(found[::2], found[1::2], strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class MergedRecords:
    """Records of two processes, merged."""

    worked: int  # jobs that were enqueued and worked
    unknown: int  # jobs that were worked without being enqueued
    seconds: float  # from the first start of enqueueing until the last job was worked
    waits: Sequence[float]  # seconds from the start of enqueueing until a worker had the job
    per_second: Sequence[int]


def merge(enqueued: Mapping[int, int], worked: Mapping[int, int]) -> MergedRecords:
    """Merge Unix nanoseconds by job number, of the start of enqueueing and of the work. Raises `RunFailed` for none."""
    both = enqueued.keys() & worked.keys()
    if not both:
        raise RunFailed("no job was enqueued and worked")
    began = min(enqueued.values())
    moments = sorted((worked[number] - began) / 1e9 for number in both)
    counts = [0] * (int(moments[-1]) + 1)
    for second, some in itertools.groupby(moments, int):
        counts[second] = len(list(some))
    waits = [max(0, worked[number] - enqueued[number]) / 1e9 for number in both]
    return MergedRecords(len(both), len(worked.keys() - enqueued.keys()), moments[-1], waits, counts)


async def _run(queue: Queue, store: stores.Store, seconds: float, directory: Path, sink: SinkProcess | None) -> Run:
    part = "jobs" if sink is None else "webhooks"
    name = f"{part}-{queue.name}"
    async with Program(name, queue.command(store.url, sink.url if sink else ""), directory) as program:
        reconcile(name, await program.request(seconds=WARM_UP_SECONDS, clients=CLIENTS))
        pids = {"store": store.pid, "clients+workers": program.pid}
        if sink is not None:
            await sink.take()
            pids["webhook"] = sink.pid
        async with TreeSampler(pids) as watched:
            found = await program.request(seconds=seconds, clients=CLIENTS)
        reconcile(name, found)
        if sink is not None:
            counts = await sink.counts()
            if counts.statuses != found["jobs"] or counts.bad_signatures or counts.unreadable:
                raise RunFailed(f"{name}: of {found['jobs']} posts the webhook counted {counts}")
    latencies = {ENQUEUED: Summary(**found["enqueue_ms"]), WORKED: Summary(**found["work_ms"])}
    return Run(
        name=name,
        title=queue.title,
        count=found["jobs"],
        unit="jobs" if sink is None else "posts",
        seconds=found["seconds"],
        rate=found["jobs"] / found["seconds"],
        latencies=latencies,
        throughput=found["per_second"],
        samples=watched.samples,
        parameters={"durability": store.durability, "note": queue.note},
        details={"repeated": found["repeated"]},
    )


def reconcile(name: str, found: Mapping[str, Any]) -> None:
    """Check that every job was worked. Raises `RunFailed`.

    A repeated job is within the guarantee of "at least once": it is reported.
    """
    if not found["jobs"] or found["worked"] != found["jobs"] or found["unknown"] or found["left"]:
        raise RunFailed(f"{name}: {found}")
