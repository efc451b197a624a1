"""Performance report of the On-Premises API, repeated with Tidings.

    python -m benchmarks.seed000 [--quick] [--long] [--only RUN …] [--rounds 2]

Four clients, each of which makes a contacts call, sends a template, waits for the response and continues at once;
10,000 messages to as many recipients, which were never checked or written to before. `--long` adds 100,000. One of the
runs is driven by Locust (`benchmarks/locustfile.py`), the others by a client that uses less of the machine.

The runs `seed-page…` have the conditions of the published report: servers 80 to 150 ms away and 5 ms per commit.
`--distance`, `--commit-ms` and `--blocking` measure other conditions, as the run `seed-own`.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import functools
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks import calibrations
from benchmarks.calibrations import mysqlslap
from benchmarks.rig import contents, messages, report, session, stage
from benchmarks.rig.messages import Measured
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import ONE_OF_EACH, Scene, Stage
from benchmarks.workloads import delays
from harness import client, ledger, spawn
from harness.client import ContactChecks, Message, Sent
from harness.cluster import ProcessCounts

ROOT = Path(__file__).parents[1]
LOCUST = ROOT / "build" / "bench" / "bin" / "locust"
CLIENTS = 4
MESSAGES, LONG, QUICK = 10_000, 100_000, 400
JOB_QUEUE_LIMIT = 20_000
# Commits that a client waits for in each iteration: that of the contacts call, and that of the message.
WRITES = 2
# Conditions of the published report: milliseconds of a call of the network, and of a commit.
DISTANCE, COMMIT = "80..150", 5
# Messages between the contacts call for a recipient and the message to it: more than are sent while one check lasts.
AHEAD = 100
# Figures of the published report, in messages per second.
STATED, SUSTAINED, SINGLE_AZ, MULTI_AZ = 70.0, (10_000 / 540, 10_000 / 480), 20.0, (12.0, 15.0)
HOW = """\
Taken by `make bench-seed000` (`python -m benchmarks.seed000`). Four clients; each makes a contacts call for the next
recipient, sends a template with parameters in header, body and a button, waits for its 201 and goes on at once. Every
recipient is new: caches and sessions are cold, so a message takes all three round trips with the network (contacts,
pre-keys, the message), and its sent, delivered and read callbacks. The rate is from the first request to the last of
those callbacks. Limits are off but where a run has them on (80 messages and 40 contacts calls a second; a client that
is refused tries again after 0.1 s). `N ms a commit` adds that to every commit of Coreapp and network; `network 80–150
ms` adds that to every call of the network, as the original's page gives for its servers. The runs with both have the
page's conditions. Contacts calls are `wait` unless a run says otherwise. With `no_wait`, a call is answered before the
network's result is known: the client sends the message at once, or, where recipients are *checked ahead*, it makes the
call 100 messages before the message, so that no request waits for the network."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunConditions:
    """Conditions of one run: clients, calls and delays."""

    name: str
    title: str
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    share: float = 1.0  # fraction of the messages that is sent, for runs that would otherwise take too long
    locust: bool = False  # Locust drives the run
    patient: bool = False  # clients retry refused requests
    checks: ContactChecks = dataclasses.field(default_factory=ContactChecks)  # contacts calls before the messages


SEED = RunConditions("seed", "4 clients, cold, templates")
# Runs that alternate; the first is the base of the ratios.
SETTINGS = (
    SEED,
    RunConditions("seed-commit5", "the same, 5 ms a commit", delays(5)),
    RunConditions("seed-commit15", "the same, 15 ms a commit", delays(15), share=0.5),
    RunConditions("seed-distant", "the same, network 80–150 ms", delays(network="80..150"), share=0.2),
    RunConditions("seed-locust", "the same, driven by Locust", locust=True),
)
# Runs under the conditions of the published report, and with its slower database.
PAGE = (
    RunConditions(
        "seed-page", "the page's conditions: network 80–150 ms, 5 ms a commit", delays(COMMIT, DISTANCE), 0.1
    ),
    RunConditions(
        "seed-page-no-wait",
        "the page's conditions, `no_wait`",
        delays(COMMIT, DISTANCE),
        share=0.1,
        checks=ContactChecks("no_wait"),
    ),
    RunConditions(
        "seed-page-ahead",
        "the page's conditions, `no_wait`, checked ahead",
        delays(COMMIT, DISTANCE),
        share=0.5,
        checks=ContactChecks("no_wait", AHEAD),
    ),
    RunConditions("seed-page-commit15", "the page's slower database: 15 ms a commit", delays(15, DISTANCE), share=0.1),
    RunConditions(
        "seed-page-commit15-ahead",
        "15 ms a commit, `no_wait`, checked ahead",
        delays(15, DISTANCE),
        share=0.3,
        checks=ContactChecks("no_wait", AHEAD),
    ),
)
LIMITED = RunConditions(
    "seed-limits",
    "the same, limits of 80 and 40 a second",
    {"TIDINGS_MESSAGES_RATE": "80", "TIDINGS_CONTACTS_RATE": "40"},
    share=0.2,
    patient=True,
)
SHARDED = RunConditions("seed-shards", "the same, 2 shards on 2 Coreapps")
TWO_COREAPPS = ProcessCounts(webapps=1, coreapps=2, networks=1, shards=2)


def work(name: str, count: int, robots: int) -> list[Message]:
    """Return `count` templates, to the robots in round robin."""
    numbers = stage.recipients(robots, count)
    return [contents.template(number, f"{name}-{i}", f"Ada {i}") for i, number in enumerate(numbers)]


async def measure_one(prepared: Stage, setting: RunConditions, count: int, robots: int) -> Run:
    """Run one setting from the prepared state to reconciled figures. Raises `RunFailed` and others."""
    planned = work(setting.name, count, robots)
    async with prepared.performance(setting.name, setting.environment) as scene:
        async with messages.measured(scene, count) as found:
            if setting.locust:
                await drive_by_locust(scene, planned, found)
            else:
                await client.closed_loop(
                    scene.business,
                    planned,
                    CLIENTS,
                    contacts_first=setting.checks,
                    patient=setting.patient,
                    load=found.load,
                )
        api_rate = count / found.sent_in
        jobs = found.samples.deepest().get("coreapp jobs", 0.0)
        details = {"turn_ms": round(CLIENTS / api_rate * 1000, 2), "job_queue_use": jobs / JOB_QUEUE_LIMIT}
        conditions = {"clients": CLIENTS, **dataclasses.asdict(setting.checks), **setting.environment}
        return found.run(setting.name, setting.title, parameters=conditions, details=details)


def own_setting(options: argparse.Namespace) -> RunConditions:
    """Return the run `seed-own`, with the conditions of the command line."""
    conditions = [f"network {options.distance} ms"] if options.distance else []
    conditions += [f"{options.commit_ms:g} ms a commit", f"`{options.blocking}`"]
    return RunConditions(
        "seed-own",
        ", ".join(["4 clients, cold", *conditions]),
        delays(options.commit_ms, options.distance),
        checks=ContactChecks(options.blocking, AHEAD if options.ahead else 0),
    )


class LocustIteration(msgspec.Struct):
    """One line of Locust's results."""

    position: int
    status: int
    id: str
    started: float  # Unix seconds
    took: float  # seconds
    contacts_took: float  # seconds
    refused: int  # responses with 429 or 503 before the final ones


async def drive_by_locust(scene: Scene, planned: Sequence[Message], found: Measured) -> None:
    """Send the messages with `benchmarks/locustfile.py`, and read its results. Raises `RunFailed`."""
    if not LOCUST.exists():
        raise RunFailed("Locust is not installed: make bench-seed000 installs it")
    directory = scene.installation.directory
    write_work(planned, directory / "work.jsonl")
    environment = {
        **os.environ,
        "BENCH_WORK": str(directory / "work.jsonl"),
        "BENCH_TURNS": str(directory / "turns.jsonl"),
        "BENCH_TOKEN": scene.business.token,
    }
    command: list[str | Path] = [LOCUST, "-f", ROOT / "benchmarks" / "locustfile.py", "--headless", "--only-summary"]
    command += [
        "--users",
        str(CLIENTS),
        "--spawn-rate",
        str(CLIENTS),
        "--host",
        f"http://127.0.0.1:{scene.business.port}",
    ]
    with (directory / "locust.log").open("ab") as log:
        process = spawn.start(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
    scene.helpers["locust"] = process.pid
    status = await asyncio.to_thread(process.wait)
    if status:
        raise RunFailed(f"locust ended with {status}: {(directory / 'locust.log').read_text()[-1500:]}")
    iterations = await asyncio.to_thread(_read_iterations, directory / "turns.jsonl")
    if len(iterations) != len(planned):
        raise RunFailed(f"locust wrote down {len(iterations)} of {len(planned)} turns")
    # The start of Locust does not count.
    found.started = min(iteration.started - iteration.contacts_took for iteration in iterations)
    for iteration in iterations:
        message = planned[iteration.position]
        found.load.contacts_took.append(iteration.contacts_took)
        found.load.refused[429] += iteration.refused
        request = ledger.Request(message.number, message.digest, iteration.status or None, iteration.id)
        found.load.sent.append(Sent(request, iteration.started, iteration.took))


def _read_iterations(path: Path) -> list[LocustIteration]:
    return [msgspec.json.decode(line, type=LocustIteration) for line in path.read_bytes().splitlines()]


def write_work(planned: Sequence[Message], path: Path) -> None:
    """Write the messages in the format of `benchmarks/locustfile.py`."""
    encode = msgspec.json.encode
    path.write_bytes(b"\n".join(encode({"number": m.number, "body": m.body.decode()}) for m in planned) + b"\n")


async def measure(current: Session) -> None:
    """Carry out the wanted runs: those on one installation alternate, the others run once."""
    options = current.options
    count = options.messages or (QUICK if options.quick else MESSAGES)
    robots = min(count, stage.MOST_ROBOTS)

    def variant(prepared: Stage, setting: RunConditions, of: int = count) -> Variant:
        wanted = max(100, int(of * setting.share))
        return Variant(
            setting.name, setting.title, functools.partial(measure_one, prepared, setting, wanted, min(robots, wanted))
        )

    iterations = [setting for setting in SETTINGS if current.is_wanted(setting.name)]
    alone = [setting for setting in (*PAGE, LIMITED) if current.is_wanted(setting.name)]
    alone += [own_setting(options)] if "seed-own" in (options.only or ()) else []
    long = options.long or "seed-long" in (options.only or ())
    if iterations or alone or long:
        async with stage.prepared(current, robots=stage.MOST_ROBOTS if long else robots, shape=ONE_OF_EACH) as prepared:
            if iterations:
                base, *others = (variant(prepared, setting) for setting in iterations)
                await current.alternate(base, *others, rounds=1 if options.quick or options.only else options.rounds)
            for setting in alone:
                await current.once(variant(prepared, setting))
            if long:
                setting = RunConditions("seed-long", f"{LONG:,} messages, 4 clients, the first 10,000 of them cold")
                measured = functools.partial(measure_one, prepared, setting, LONG, stage.MOST_ROBOTS)
                await current.once(Variant(setting.name, setting.title, measured))
    if current.is_wanted(SHARDED.name):
        async with stage.prepared(current, robots=robots, shape=TWO_COREAPPS) as prepared:
            await current.once(variant(prepared, SHARDED))
    current.report.notes += notes(current.report.medians(), await mysqlslap.measure(await current.database()))


def ceiling(base: Run, delay_ms: float) -> float:
    """Return the messages per second of four clients that wait for two calls as in `base`, and for the delay in each.

    delay_ms: milliseconds added to each commit
    """
    iteration = float(base.details["turn_ms"]) + WRITES * delay_ms
    return CLIENTS / iteration * 1000


def notes(runs: Sequence[Run], write_ms: float) -> list[str]:
    """Return the notes of the report: our figures next to the published ones."""
    by_name = {run.name: run for run in runs}
    rows = []
    for run in runs:
        rows.append(
            [
                run.title + (" †" if run.is_marked else ""),
                f"{run.rate:.0f}",
                f"{run.rate / STATED:.2f}",
                " to ".join(f"{run.rate / rate:.2f}" for rate in reversed(SUSTAINED)),
                f"{run.rate / SINGLE_AZ:.2f}",
                " to ".join(f"{run.rate / rate:.2f}" for rate in reversed(MULTI_AZ)),
                f"{10_000 / run.rate / 60:.1f}",
                f"{run.details['job_queue_use']:.2%}",
                f"{run.details['callback_post_ms']:.1f}",
            ]
        )
    header = [
        "run",
        "messages/s",
        "× its 70/s",
        "× 10,000 in 8–9 minutes",
        "× its 20/s (5 ms)",
        "× its 12–15/s (15 ms)",
        "minutes for 10,000",
        "job queue, most",
        "callback, ms",
    ]
    parts = [
        "## Beside the original's page",
        "\n".join(report.table(header, rows)),
        f"The page says that 70 messages/s can be had and that its graphs show a constant 70; it also says that 10,000 "
        f"messages took 8 to 9 minutes, which is {SUSTAINED[0]:.1f} to {SUSTAINED[1]:.1f} a second, and of a run with "
        f"a slower database that it fell from {SINGLE_AZ:.0f} a second to {MULTI_AZ[0]:.0f} to {MULTI_AZ[1]:.0f} at "
        "15 ms a write. Both are given above. Each of its clients makes a contacts call for each message, of which its "
        "limit lets 40 a second through: with its own limits on, its own clients cannot pass 40 messages/s. Four "
        "clients that wait for a contacts call of 80 to 150 ms before each message cannot pass "
        f"{CLIENTS / 0.115:.0f} messages/s either, so that the 70 need `no_wait`. It ran on "
        "a c4.4xlarge (16 vCPU) with its database on a db.m5.12xlarge (48 vCPU, 10,000 IOPS).",
        f"`benchmarks/mysqlslap.sh`, the page's command, on the database of these runs: {write_ms:.2f} ms a write; the "
        "page's was 5.6 ms (Single-AZ) and 15.6 ms (Multi-AZ).",
    ]
    base = by_name.get("seed")
    for name, delay in (("seed-commit5", 5.0), ("seed-commit15", 15.0)):
        slow = by_name.get(name)
        if base is not None and slow is not None and not base.is_marked and not slow.is_marked:
            most = ceiling(base, delay)
            parts.append(
                f"With {delay:g} ms more for each commit, four clients that wait for two commits in each turn of "
                f"{base.details['turn_ms']:.1f} ms can have {most:.0f} messages/s; there were "
                f"{slow.details['api_rate']:.0f}, {slow.details['api_rate'] / most:.0%} of that."
            )
    return [*parts, *_over_time(runs)]


def _over_time(runs: Sequence[Run]) -> list[str]:
    rows = []
    for run in runs:
        parts = [run.throughput[i * len(run.throughput) // 10 : (i + 1) * len(run.throughput) // 10] for i in range(10)]
        rows.append([run.title, *(f"{statistics.fmean(part):.0f}" if part else "–" for part in parts)])
    header = ["messages/s over time, by tenths of the run", *(f"{n * 10} %" for n in range(1, 11))]
    return ["\n".join(report.table(header, rows))]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, help=f"of a whole run (default {MESSAGES:,})")
    parser.add_argument("--long", action="store_true", help=f"{LONG:,} messages besides (10 minutes and more)")
    parser.add_argument("--rounds", type=int, default=2, help="of the runs that take turns (default %(default)s)")
    own = parser.add_argument_group("conditions of `--only seed-own`")
    own.add_argument("--distance", default=DISTANCE, help="milliseconds of a call of the network (%(default)s)")
    own.add_argument("--commit-ms", type=float, default=COMMIT, help="milliseconds of a commit (%(default)s)")
    own.add_argument("--blocking", choices=("wait", "no_wait"), default="wait", help="contacts calls (%(default)s)")
    own.add_argument("--ahead", action="store_true", help=f"check each recipient {AHEAD} messages ahead")


BENCHMARK = Benchmark(
    name="seed000",
    title="Four clients with cold caches, as in the original's performance report",
    how=HOW,
    measure=measure,
    names=[*(setting.name for setting in (*SETTINGS, *PAGE, LIMITED, SHARDED)), "seed-own", "seed-long"],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
