"""Messages through the Cloud API, and through v1: `python -m benchmarks.cloud_api [--quick] [--rounds 5]`.

Alternates the same load of 64 clients on the same installation: through v1 with callbacks in its format, and through
the Cloud API with signed webhooks. Fails when the Cloud API reaches less than 90 % of v1's rate, or when the p99 of its
`POST /messages` exceeds v1's by more than 20 %, unless --quick.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics

from benchmarks import calibrations
from benchmarks.rig import contents, messages, session, stage
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.session import Benchmark, Session, Variant
from benchmarks.rig.stage import Scene, Stage
from harness import client, cloud_client
from harness.cloud_client import CloudBusiness
from harness.installation import Installation

ROBOTS, CLIENTS = 1000, 64
MESSAGES, QUICK = 10_000, 1_500
LEAST = 0.9  # minimum rate of the Cloud API, relative to v1
MOST = 1.2  # maximum p99 of `POST /messages` of the Cloud API, relative to v1
STATUSES = 3  # events of one message
V1, CLOUD = "v1", "cloud"
HOW = """\
Taken by `make bench-cloud_api` (`python -m benchmarks.cloud_api`), `TIDINGS_CLOUD_API=1`, warm sessions, 1,000
recipients, texts of 100 bytes, MariaDB. 64 clients wait for each response before they send the next message. *v1*:
`POST /v1/messages`, callbacks of v1. *cloud*: `POST /{phone-number-id}/messages`, webhooks of the Cloud API, and no
webhook of v1. The receiver verifies every signature, and each run reconciles the messages that were accepted and shown
with three events each. Rounds alternate."""


@dataclasses.dataclass(slots=True)
class AppSecret:
    """App secret of the prepared installation."""

    text: str = ""

    async def read(self, installation: Installation) -> None:
        self.text = await cloud_client.app_secret(installation.common)


async def through_cloud(scene: Scene, secret: AppSecret) -> Scene:
    """Return the scene with a business that uses the Cloud API alone."""
    await scene.business.check_call("PATCH", "/v1/settings/application", {"webhooks": {"url": ""}})
    await scene.sink.expect_cloud(secret.text)
    business = CloudBusiness(scene.business.port)
    business.use(scene.business.token)
    await business.set_webhook(scene.sink.url)
    return dataclasses.replace(scene, business=business)


async def measure_one(prepared: Stage, secret: AppSecret, name: str, title: str, *, count: int) -> Run:
    """Start from the prepared state, warm up, send `count` messages, stop. Raises `RunFailed` and others."""
    async with prepared.performance(name) as started:
        scene = await through_cloud(started, secret) if name == CLOUD else started
        await scene.sink.verify(every=1)
        await messages.warm_up(scene, stage.recipients(ROBOTS, ROBOTS), CLIENTS)
        verified = (await scene.sink.counts()).verified
        async with messages.measured(scene, count) as found:
            work = [contents.text(number, f"{name} {i}: ") for i, number in enumerate(stage.recipients(ROBOTS, count))]
            await client.closed_loop(scene.business, work, CLIENTS, load=found.load)
        verified = (await scene.sink.counts()).verified - verified
        if verified < STATUSES * count:
            raise RunFailed(f"{verified} signed events of {count} messages")
        run = found.run(name, title, details={"verified_signatures": verified})
        path = "/{phone-number-id}/messages" if name == CLOUD else "/v1/messages"
        latencies = {f"POST {path}": run.latencies["POST /v1/messages"]} | {
            operation: latency for operation, latency in run.latencies.items() if operation != "POST /v1/messages"
        }
        return dataclasses.replace(run, latencies=latencies)


def p99(runs: list[Run], name: str) -> float:
    """Return the median of the p99 of `POST /messages` of the runs of a name that are not marked, in milliseconds.

    Returns 0 without such a run.
    """
    found = [next(iter(run.latencies.values())).p99 for run in runs if run.name == name and not run.is_marked]
    return statistics.median(found) if found else 0.0


async def measure(current: Session) -> None:
    """Measure both APIs in alternating rounds. Raises `RunFailed`."""
    count = QUICK if current.options.quick else MESSAGES
    secret = AppSecret()
    async with stage.prepared(
        current, robots=ROBOTS, environment={"TIDINGS_CLOUD_API": "1"}, set_up=secret.read
    ) as prepared:
        base, cloud = (
            Variant(name, title, functools.partial(measure_one, prepared, secret, name, title, count=count))
            for name, title in ((V1, f"v1, {CLIENTS} clients, warm"), (CLOUD, f"Cloud API, {CLIENTS} clients, warm"))
        )
        if not current.options.only:
            await current.alternate(base, cloud, rounds=current.options.rounds)
            _judge(current)
            return
        for variant in (base, cloud):
            if current.is_wanted(variant.name):
                await current.once(variant)


def _judge(current: Session) -> None:
    """Add the ratio of the p99 to the report. Raises `RunFailed` when a limit is exceeded, unless --quick."""
    ratio = current.report.ratios[-1]
    slow, fast = p99(current.report.runs, CLOUD), p99(current.report.runs, V1)
    if not slow or not fast:
        return
    current.report.notes.append(
        f"p99 of `POST /messages`, median of the rounds: {slow:.1f} ms through the Cloud API, {fast:.1f} ms through "
        f"v1, ratio {slow / fast:.2f} (limit {MOST})."
    )
    if current.options.quick:
        return
    if ratio.value is not None and ratio.value < LEAST:
        raise RunFailed(f"{ratio}: less than {LEAST:.0%} of v1's rate")
    if slow > MOST * fast:
        raise RunFailed(f"p99 of {slow:.1f} ms, v1 has {fast:.1f} ms")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="of both APIs (default %(default)s)")


BENCHMARK = Benchmark(
    name="cloud_api",
    title="Cloud API and v1",
    how=HOW,
    measure=measure,
    names=[V1, CLOUD],
    calibrations=calibrations.COMMON,
    add_options=add_options,
)

if __name__ == "__main__":
    session.main(BENCHMARK, __doc__)
