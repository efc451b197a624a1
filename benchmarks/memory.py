"""Memory with a full callback queue: `python -m benchmarks.memory [--quick] [--no-url]`.

The webhook refuses everything (or is not set, with `--no-url`) until 100,000 callbacks are pending. The memory of every
process must stay below 300 MB throughout. Finally the webhook accepts everything, and the messages are reconciled.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools

import psutil

from benchmarks import calibrations
from benchmarks.rig import contents, messages, report, session, stage
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Scene, Stage
from harness import client, measure
from harness.client import Load

LIMIT_MB = 300  # per process
ROBOTS, CLIENTS = 1000, 32
CALLBACKS, QUICK = 100_000, 3_000
FILL_SECONDS = 900.0
HOW = f"""\
Taken by `make bench-memory` (`python -m benchmarks.memory`): {ROBOTS:,} recipients, {CLIENTS} clients that send until
so many callbacks wait, since the webhook responds 503 to each or there is none. The figures of the first table are of
the whole, with the time in which the webhook then takes everything."""


def pending(scene: Scene) -> int:
    """Return the number of pending callbacks."""
    return int(measure.metric(scene.installation.metrics()["coreapp"], "callback_queue_size"))


async def fill(scene: Scene, load: Load, callbacks: int) -> None:
    """Send until `callbacks` callbacks are pending, or messages are refused because of them."""
    full = asyncio.Event()
    numbers, positions = stage.recipients(ROBOTS, ROBOTS), itertools.count()

    async def watch() -> None:
        while not full.is_set():
            if await asyncio.to_thread(pending, scene) >= callbacks:
                full.set()
            await asyncio.sleep(1)

    async def one_client() -> None:
        connection = await scene.business.connect()
        while not full.is_set():
            position = next(positions)
            message = contents.text(numbers[position % ROBOTS], f"Message {position}: ")
            sent = await scene.business.post(connection, message)
            load.sent.append(sent)
            if sent.request.status == 503:
                # Messages are refused now; callbacks of those in flight still arrive.
                await asyncio.sleep(0.5)
            elif not sent.request.accepted:
                raise client.UnexpectedResponse(f"message: status {sent.request.status}")
        connection.close()

    async with asyncio.timeout(FILL_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(watch())
        for _ in range(CLIENTS):
            group.create_task(one_client())


async def _accept_callbacks(scene: Scene) -> None:
    await scene.sink.respond_with(200)
    await scene.business.set_webhook(scene.sink.url)


async def measure_one(prepared: Stage, callbacks: int, *, with_url: bool) -> Run:
    """Fill the queue, then drain it. Raises `RunFailed` when a process exceeded the memory limit, and others."""
    weights: dict[str, float] = {}
    waiting = 0
    async with prepared.performance("memory") as scene:
        await scene.sink.respond_with(503)
        await scene.business.check_contacts(stage.recipients(ROBOTS, ROBOTS))
        if not with_url:
            await scene.business.check_call("PATCH", "/v1/settings/application", {"webhooks": {"url": ""}})
        async with messages.measured(scene, drain=functools.partial(_accept_callbacks, scene)) as found:
            await fill(scene, found.load, callbacks)
            waiting = await asyncio.to_thread(pending, scene)
            weights = {
                name: round(psutil.Process(pid).memory_info().rss / 1e6, 1)
                for name, pid in scene.installation.pids().items()
            }
    heavy = {
        name: f"{size / 1e6:.0f} MB"
        for name, size in found.samples.peak_rss.items()
        if name not in ("mariadbd", "load", "sink") and size >= LIMIT_MB * 1e6
    }
    if heavy:
        raise RunFailed(f"with {waiting} callbacks waiting these were over {LIMIT_MB} MB: {heavy}")
    title = f"{waiting:,} callbacks wait, webhook {'refuses' if with_url else 'not set'}"
    return found.run("memory", title, details={"waiting": waiting, "rss_mb": weights})


async def measure_all(current: Session) -> None:
    options = current.options
    callbacks = options.callbacks or (QUICK if options.quick else CALLBACKS)
    async with stage.prepared(current, robots=ROBOTS) as prepared:
        measured = functools.partial(measure_one, prepared, callbacks, with_url=not options.no_url)
        run = await current.once(Variant("memory", f"{callbacks:,} callbacks that wait", measured))
    if run is not None:
        now, most = run.details["rss_mb"], run.samples.peak_rss
        rows = [[name, f"{size:.0f}", f"{most[name] / 1e6:.0f}"] for name, size in now.items()]
        table = report.table([f"{run.details['waiting']:,} callbacks wait", "MB then", "MB at most"], rows)
        current.report.notes += ["\n".join(table), f"Every process of ours stayed below {LIMIT_MB} MB."]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--callbacks", type=int, help=f"that are to wait (default {CALLBACKS:,})")
    parser.add_argument("--no-url", action="store_true", help="set no webhook instead of one that refuses")


BENCHMARK = Benchmark(
    name="memory",
    title="Memory with a full callback queue",
    how=HOW,
    measure=measure_all,
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
