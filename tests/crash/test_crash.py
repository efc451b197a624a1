"""`make test-crash`: 10,000 messages at 200 per second on MariaDB, while every process is killed one after the other,
then each crash point. Afterwards sender, recipients and webhook must agree on every message. With up to 100 statuses in
a post, 4,000 messages, the webhook refusing posts or being away for a while, and the crash point of the webhook."""

from __future__ import annotations

import datetime
import random
import secrets
from pathlib import Path

import pytest

from harness import database_server
from harness.client import Business
from harness.installation import Installation, keep_logs
from harness.sink_process import SinkProcess
from tests.crash import disruptions, table
from tests.crash.disruptions import Disruption
from tests.crash.scene import ENVIRONMENT, Scene
from tidings.aio import crashpoints

RATE = 200.0
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
# Phases of the run with several statuses in a post, and its crash points as in `disruptions.POINTS`. A post is a pass.
WEBHOOK_PHASES: tuple[tuple[str, Disruption], ...] = (
    ("webhook refuses every post 3 times", disruptions.RespondWith(500)),
    ("webhook away 3 times", disruptions.RespondWith(503)),
)
BATCH_POINTS = ((crashpoints.AFTER_200_BEFORE_MARK, "coreapp", 60),)


@pytest.mark.whole_system
@pytest.mark.parametrize("statuses_per_post", [1, 100])
async def test_no_message_is_lost_doubled_or_corrupted_when_any_process_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest, statuses_per_post: int
) -> None:
    options, is_batched = request.config.option, statuses_per_post > 1
    messages = options.batched_messages if is_batched else options.messages
    environment = {**ENVIRONMENT, "TIDINGS_WEBHOOK_STATUSES_PER_POST": str(statuses_per_post)}
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    print(f"\nseed {seed} (--seed={seed} repeats its random moments)", flush=True)
    mariadb = database_server.make(flush_log=1, buffer_pool_mb=256)
    mariadb.start()
    try:
        async with (
            Installation(tmp_path, mariadb, environment) as installation,
            SinkProcess(tmp_path, installation.webhook_secret, verify_every=1) as sink,
        ):
            await installation.start()
            scene = Scene(installation, sink, Business(installation.api_port), random.Random(seed))
            await scene.open()
            try:
                settled = await _play(scene, messages, options.point_messages, options.only, is_batched=is_batched)
                counts = await sink.counts()
            finally:
                if options.keep:
                    keep_logs(tmp_path, Path(options.keep))
    finally:
        mariadb.remove()
    print(f"\n{table.aligned(scene)}\n\n{table.NOTES}", flush=True)
    problems = table.problems(scene, settled=settled)
    if messages >= 10_000 and not options.only:
        _write(scene, seed, problems, "-batched" if is_batched else "")
    assert not problems, "\n" + "\n".join(problems)
    assert not counts.bad_signatures
    assert (counts.batched > 0) is is_batched


async def _play(scene: Scene, messages: int, point_messages: int, only: str | None, *, is_batched: bool) -> bool:
    settled = True
    kills, points, change_points = disruptions.KILL_PHASES, disruptions.POINTS, disruptions.CHANGE_POINTS
    if is_batched:
        kills, points, change_points = (*kills, *WEBHOOK_PHASES), BATCH_POINTS, ()
    phases = [phase for phase in kills if not only or only in phase[0]]
    for name, disruption in phases:
        await scene.play(name, messages // len(phases), RATE, disruption)
        print(f"  {table.describe_phase(scene.phases[-1])}", flush=True)
    settled &= await scene.settle()
    for point, process, most in points:
        name = f"{process} {point}"
        count = scene.rng.randint(1, most)
        if only and only not in name:
            continue
        await scene.play(name, point_messages, RATE, disruptions.CrashAt(point, process, count))
        settled &= await scene.settle()
        print(f"  {table.describe_phase(scene.phases[-1])}{'' if settled else ', NOT SETTLED'}", flush=True)
    for point, count in change_points:
        name = f"coreapp {point}:{count}"
        if only and only not in name:
            continue
        await scene.play(name, point_messages, RATE, disruptions.CrashInChange(point, count))
        settled &= await scene.settle()
        print(f"  {table.describe_phase(scene.phases[-1])}{'' if settled else ', NOT SETTLED'}", flush=True)
    return settled


def _write(scene: Scene, seed: int, problems: list[str], suffix: str) -> None:
    date = datetime.date.today().isoformat()
    RESULTS.mkdir(exist_ok=True)
    result = "\n".join(problems) or "The ledger balances."
    (RESULTS / f"{date}-crash{suffix}.md").write_text(
        f"# Killed under load, {date}\n\n"
        f"Taken by `make test-crash`, seed {seed}: messages to robots at {RATE:.0f} a second on MariaDB "
        "(`innodb_flush_log_at_trx_commit=1`), everything on one machine.\n\n"
        f"{table.markdown(scene)}\n\n{table.NOTES}\n\n{result}\n"
    )
