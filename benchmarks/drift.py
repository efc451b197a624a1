"""Many messages at a steady rate: `python -m benchmarks.drift [--quick] [--messages 100000] [--share 0.8]`.

Finds the peak rate of 64 clients that wait for each response, then sends messages at 80 % of it: enough to fill every
bounded memory of past messages, and 100,000 more. Requirement: constant rate and latencies, and memory that does not
grow.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
from collections.abc import Sequence

from benchmarks import calibrations
from benchmarks.overload import ROBOTS, find_peak
from benchmarks.rig import contents, messages, report, session, stage, summary
from benchmarks.rig.run import Run
from benchmarks.rig.sampler import Point
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Stage
from harness import client, measure

MESSAGES, QUICK = 100_000, 4_000
# Messages until the processes are warm: the Coreapp remembers the progress of the latest 100,000 messages, the network
# the latest 100,000 envelopes, of which each message has three or four.
WARM, QUICK_WARM = 110_000, 1_000
SHARE = 0.8  # of the peak rate
STEP = 10_000  # messages per which memory growth is reported
HOW = """\
Taken by `make bench-drift` (`python -m benchmarks.drift`), warm sessions, 1,000 recipients, texts of 100 bytes. The
peak is what 64 clients get that wait for their responses; then messages are sent at a part of it, whatever becomes of
the ones before: 110,000 until every bounded memory of the latest messages is full, then those that count. *Drift* is
the mean of the last quarter of these against that of the first: of messages completed in each second, and of the time
from the request to the last callback. *Growth* is the slope of a process's resident memory over the messages done, by
least squares, before and after it is warm."""


def growth(points: Sequence[Point], throughput: Sequence[float], since: float, until: float) -> dict[str, float]:
    """Return the memory growth in megabytes per `STEP` messages, by process.

    since, until: range of completed messages
    """
    done = [0.0, *itertools.accumulate(throughput)]
    found: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        messages_done = done[min(int(point.at), len(done) - 1)]
        if since <= messages_done <= until:
            for name, size in point.rss.items():
                found.setdefault(name, []).append((messages_done / STEP, size / 1e6))
    return {name: round(summary.slope(line), 3) for name, line in found.items()}


async def measure_one(prepared: Stage, rate: float, count: int, warm: int) -> Run:
    """Send `warm` and then `count` messages at `rate` per second. Raises `RunFailed` and others.

    warm: messages that are sent first and not counted
    """
    numbers = stage.recipients(ROBOTS, ROBOTS)
    work = [(numbers[i % ROBOTS], f"drift {i}: ".ljust(contents.TEXT, ".")) for i in range(warm + count)]
    async with prepared.performance("drift") as scene:
        await messages.warm_up(scene, numbers)
        async with messages.measured(scene, len(work)) as found:
            await client.open_loop(scene.business, work, rate, load=found.load)
    done = measure.completion_times(found.records)
    sent = sorted((s for s in found.load.sent if s.request.message_id in done), key=lambda s: s.started)
    title = f"{warm:,} and {count:,} messages at {rate:.0f}/s"
    run = found.run("drift", title, parameters={"rate": rate, "warm": warm, "count": count})
    # The last second is not a full one.
    whole = run.throughput[:-1]
    details = {
        "accepted": len(sent),
        "rate_drift": summary.drift(whole[int(warm / rate) :]),
        "latency_drift": summary.drift([done[s.request.message_id] - s.started for s in sent[warm:]]),
        "growth_before_mb": growth(run.samples.points, whole, 0, warm),
        "growth_mb": growth(run.samples.points, whole, warm, len(work)),
    }
    return dataclasses.replace(run, details={**run.details, **details})


async def measure_all(current: Session) -> None:
    options = current.options
    count = options.messages or (QUICK if options.quick else MESSAGES)
    warm = QUICK_WARM if options.quick else WARM
    async with stage.prepared(current, robots=ROBOTS) as prepared:
        seconds = 3.0 if options.quick else 15.0
        peak = await current.once(Variant("peak", "the peak", functools.partial(find_peak, prepared, seconds)))
        if peak is None:
            return
        rate = options.share * peak.rate
        title = f"{count:,} messages at {options.share:.0%} of it"
        found = await current.once(Variant("drift", title, functools.partial(measure_one, prepared, rate, count, warm)))
    if found is not None:
        current.report.notes += notes(found)


def notes(run: Run) -> list[str]:
    d = run.details
    rows = [
        [name, f"{d['growth_before_mb'][name]:+.2f}", f"{slope:+.2f}", f"{run.samples.peak_rss[name] / 1e6:.0f}"]
        for name, slope in d["growth_mb"].items()
    ]
    return [
        "## Drift",
        f"Of the last {run.parameters['count']:,} of {run.count:,} messages: rate {d['rate_drift']:+.1%}, "
        f"time to the last callback {d['latency_drift']:+.1%}.",
        "\n".join(report.table(["memory, MB", f"for each {STEP:,} messages until warm", "warm", "most"], rows)),
    ]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--messages", type=int, help=f"that count (default {MESSAGES:,})")
    parser.add_argument("--share", type=float, default=SHARE, help="of the peak (default %(default)s)")


BENCHMARK = Benchmark(
    name="drift",
    title="Many messages at four fifths of what can be done",
    how=HOW,
    measure=measure_all,
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
