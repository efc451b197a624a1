"""`make test-crash`: 10,000 messages at 200 per second on MariaDB, while every process is killed one after the other,
then each crash point. Afterwards sender, recipients and webhook must agree on every message."""

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
from tests.crash.scene import ENVIRONMENT, Scene

RATE = 200.0
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.whole_system
async def test_no_message_is_lost_doubled_or_corrupted_when_any_process_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = request.config.option
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    print(f"\nseed {seed} (--seed={seed} repeats its random moments)", flush=True)
    mariadb = database_server.make(flush_log=1, buffer_pool_mb=256)
    mariadb.start()
    try:
        async with (
            Installation(tmp_path, mariadb, ENVIRONMENT) as installation,
            SinkProcess(tmp_path, installation.webhook_secret, verify_every=1) as sink,
        ):
            await installation.start()
            scene = Scene(installation, sink, Business(installation.api_port), random.Random(seed))
            await scene.open()
            try:
                settled = await _play(scene, options.messages, options.point_messages, options.only)
                bad = await sink.counts()
            finally:
                if options.keep:
                    keep_logs(tmp_path, Path(options.keep))
    finally:
        mariadb.remove()
    print(f"\n{table.aligned(scene)}\n\n{table.NOTES}", flush=True)
    problems = table.problems(scene, settled=settled)
    if options.messages >= 10_000 and not options.only:
        _write(scene, seed, problems)
    assert not problems, "\n" + "\n".join(problems)
    assert not bad.bad_signatures


async def _play(scene: Scene, messages: int, point_messages: int, only: str | None) -> bool:
    settled = True
    phases = [phase for phase in disruptions.KILL_PHASES if not only or only in phase[0]]
    for name, disruption in phases:
        await scene.play(name, messages // len(phases), RATE, disruption)
        print(f"  {table.describe_phase(scene.phases[-1])}", flush=True)
    settled &= await scene.settle()
    for point, process, most in disruptions.POINTS:
        name = f"{process} {point}"
        count = scene.rng.randint(1, most)
        if only and only not in name:
            continue
        await scene.play(name, point_messages, RATE, disruptions.CrashAt(point, process, count))
        settled &= await scene.settle()
        print(f"  {table.describe_phase(scene.phases[-1])}{'' if settled else ', NOT SETTLED'}", flush=True)
    for point, count in disruptions.CHANGE_POINTS:
        name = f"coreapp {point}:{count}"
        if only and only not in name:
            continue
        await scene.play(name, point_messages, RATE, disruptions.CrashInChange(point, count))
        settled &= await scene.settle()
        print(f"  {table.describe_phase(scene.phases[-1])}{'' if settled else ', NOT SETTLED'}", flush=True)
    return settled


def _write(scene: Scene, seed: int, problems: list[str]) -> None:
    date = datetime.date.today().isoformat()
    RESULTS.mkdir(exist_ok=True)
    result = "\n".join(problems) or "The books balance."
    (RESULTS / f"{date}-crash.md").write_text(
        f"# Killed under load, {date}\n\n"
        f"Taken by `make test-crash`, seed {seed}: messages to robots at {RATE:.0f} a second on MariaDB "
        "(`innodb_flush_log_at_trx_commit=1`), everything on one machine.\n\n"
        f"{table.markdown(scene)}\n\n{table.NOTES}\n\n{result}\n"
    )
