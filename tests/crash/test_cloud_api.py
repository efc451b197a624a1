"""`make test-crash` through the Cloud API: 20,000 messages while every process is killed one after the other.

Afterwards sender, recipients and receiver of webhooks must agree on every message, every signature must be valid, and
events that are posted again must have the same id.
"""

from __future__ import annotations

import datetime
import random
import secrets
from pathlib import Path

import pytest

from harness import cloud_client, database_server
from harness.cloud_client import CloudBusiness
from harness.installation import Installation, keep_logs
from harness.sink import Counts
from harness.sink_process import SinkProcess
from tests.crash import disruptions, table
from tests.crash.scene import ENVIRONMENT, Scene, verdict
from tidings.aio import crashpoints

RATE = 200.0
WHOLE = 20_000  # messages of a run whose result is written
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
# Messages during which the Coreapp dies between a receiver's 200 and its own note of it, and the highest post at
# which it dies.
REPEATED, MOST_POSTS = 500, 500


@pytest.mark.whole_system
async def test_no_event_of_the_cloud_api_is_lost_renamed_or_unsigned_when_any_process_is_killed(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = request.config.option
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    print(f"\nseed {seed} (--seed={seed} repeats its random moments)", flush=True)
    mariadb = database_server.make(flush_log=1, buffer_pool_mb=256)
    mariadb.start()
    try:
        async with (
            Installation(tmp_path, mariadb, {**ENVIRONMENT, "TIDINGS_CLOUD_API": "1"}) as installation,
            SinkProcess(tmp_path, "", verify_every=1) as sink,
        ):
            await installation.start()
            await sink.expect_cloud(await cloud_client.app_secret(installation.common))
            scene = Scene(installation, sink, CloudBusiness(installation.api_port), random.Random(seed))
            await scene.open()
            try:
                settled = await _play(scene, options.cloud_messages, options.only)
                counts = await sink.counts()
            finally:
                if options.keep:
                    keep_logs(tmp_path, Path(options.keep))
    finally:
        mariadb.remove()
    print(f"\n{table.aligned(scene)}\n\n{table.NOTES}\n\n{_signatures(counts)}", flush=True)
    problems = table.problems(scene, settled=settled)
    if counts.bad_signatures or counts.unreadable:
        problems.append(_signatures(counts))
    if not options.only and not verdict(scene.phases, scene).repeats:
        problems.append("no event was posted again, so the ids of repeated events are not tested")
    if options.cloud_messages >= WHOLE and not options.only:
        _write(scene, seed, counts, problems)
    assert not problems, "\n" + "\n".join(problems)
    assert counts.verified >= 3 * sum(sent.request.accepted for phase in scene.phases for sent in phase.sent)


async def _play(scene: Scene, messages: int, only: str | None) -> bool:
    phases = [phase for phase in disruptions.KILL_PHASES if not only or only in phase[0]]
    for name, disruption in phases:
        await scene.play(name, messages // len(phases), RATE, disruption)
        print(f"  {table.describe_phase(scene.phases[-1])}", flush=True)
    settled = await scene.settle()
    name = f"coreapp {crashpoints.AFTER_200_BEFORE_MARK}"
    if not only or only in name:
        post = scene.rng.randint(1, MOST_POSTS)
        crash = disruptions.CrashAt(crashpoints.AFTER_200_BEFORE_MARK, "coreapp", post)
        await scene.play(name, REPEATED, RATE, crash)
        settled &= await scene.settle()
        print(f"  {table.describe_phase(scene.phases[-1])}{'' if settled else ', NOT SETTLED'}", flush=True)
    return settled


def _signatures(counts: Counts) -> str:
    return (
        f"signatures: {counts.verified} checked, {counts.bad_signatures} invalid; "
        f"{counts.unreadable} bodies in another format"
    )


def _write(scene: Scene, seed: int, counts: Counts, problems: list[str]) -> None:
    date = datetime.date.today().isoformat()
    RESULTS.mkdir(exist_ok=True)
    result = "\n".join(problems) or "The records agree."
    (RESULTS / f"{date}-crash-cloud.md").write_text(
        f"# Killed under load through the Cloud API, {date}\n\n"
        f"Taken by `make test-crash`, seed {seed}: messages to robots at {RATE:.0f} a second on MariaDB "
        "(`innodb_flush_log_at_trx_commit=1`), everything on one machine.\n\n"
        f"{table.markdown(scene)}\n\n{table.NOTES}\n\n{_signatures(counts)}\n\n{result}\n"
    )
