"""`make test-crash` through two installations: A sends through the Cloud API of B, while every process of both is
killed, and the wires between them are cut in both directions.

With `TIDINGS_CLOUD_UNKNOWN_OUTCOME=fail` no message is shown twice, and each is shown with all its statuses or failed
as one that may have been sent. With `resend` none is lost. Answers of recipients are neither lost nor doubled.
"""

from __future__ import annotations

import datetime
import random
import secrets
from pathlib import Path

import pytest

from benchmarks.rig import machine
from harness import database_server
from harness.cloud_pair import CloudPair
from harness.installation import keep_logs
from harness.sink_process import SinkProcess
from tests.crash import disruptions, pair, table
from tests.crash.pair import PairScene
from tests.crash.scene import ENVIRONMENT, verdict

RATE = 60.0
WHOLE = 20_000  # messages of a run whose result is written
# Kills of a process, and cuts of a wire, in a phase: of a whole run, and of a shorter one.
MANY, FEW = 5, 1
POINT_MESSAGES = 100  # messages for each crash point
NUMBER_RATE = 1000  # messages per second of A's number, so that its rate does not hold any back
A_ENVIRONMENT = {
    "TIDINGS_MESSAGES_RATE": "0",
    "TIDINGS_CONTACTS_RATE": "0",
    "TIDINGS_LEASE_SECONDS": ENVIRONMENT["TIDINGS_LEASE_SECONDS"],
    # B posts a webhook again 3 s after its first failure: most statuses settle an unknown outcome in time, not all.
    "TIDINGS_CLOUD_UNKNOWN_WAIT_S": "10",
}
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.whole_system
@pytest.mark.parametrize("outcome", ["fail", "resend"])
async def test_no_message_through_the_cloud_api_behind_is_doubled_or_lost_when_processes_and_wires_are_cut(
    tmp_path: Path, request: pytest.FixtureRequest, outcome: str
) -> None:
    options = request.config.option
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    print(f"\n{outcome}, seed {seed} (--seed={seed} repeats its random moments)", flush=True)
    variables = {**A_ENVIRONMENT, "TIDINGS_CLOUD_UNKNOWN_OUTCOME": outcome}
    mariadb = database_server.make(flush_log=1, buffer_pool_mb=256)
    mariadb.start()
    try:
        async with (
            CloudPair(tmp_path, a=variables, b=ENVIRONMENT, rate=NUMBER_RATE, mariadb=mariadb) as both,
            pair.wires(both) as wires,
            SinkProcess(tmp_path, both.a.webhook_secret, verify_every=1) as sink,
        ):
            scene = PairScene(both, wires, sink, await pair.start(both, wires), random.Random(seed))
            if outcome == "fail":
                scene.unconfirmed = pair.MAY_HAVE_BEEN_SENT
            else:
                # A message that is posted again may be shown, and answered, again.
                scene.tolerated = frozenset({"shown_twice", "replied_twice"})
            await scene.open()
            try:
                settled = await _play(scene, options.upstream_messages, options.only)
                counts = await sink.counts()
            finally:
                if options.keep:
                    for name in ("a", "b"):
                        keep_logs(tmp_path / name, Path(options.keep) / f"{outcome}-{name}")
    finally:
        mariadb.remove()
    problems = table.problems(scene, settled=settled)
    replies = scene.replies()
    if replies["lost"] or replies["doubled"]:
        problems.append(_describe(replies))
    if not replies["expected"]:
        problems.append("no recipient has replied, so replies are not tested")
    if outcome == "fail" and not options.only and not verdict(scene.phases, scene).unconfirmed:
        problems.append("no outcome was unknown, so unknown outcomes are not tested")
    print(f"\n{table.aligned(scene)}\n\n{table.NOTES}\n\n{_describe(replies)}", flush=True)
    if options.upstream_messages >= WHOLE and not options.only:
        _write(scene, outcome, seed, replies, problems)
    assert not problems, "\n" + "\n".join(problems)
    assert not counts.bad_signatures


async def _play(scene: PairScene, messages: int, only: str | None) -> bool:
    count = MANY if messages >= WHOLE else FEW
    phases = pair.phases(count, count)
    work = [(name, disruption, messages // len(phases)) for name, disruption in phases]
    for point, most in pair.POINTS:
        crash = disruptions.CrashAt(point, "A: coreapp", scene.rng.randint(1, most))
        work.append((f"A: coreapp {point}", crash, POINT_MESSAGES))
    for name, disruption, sent in work:
        if only and only not in name:
            continue
        await scene.play(name, sent, RATE, disruption)
        print(f"  {table.describe_phase(scene.phases[-1])}", flush=True)
    return await scene.settle()


def _describe(replies: dict[str, int]) -> str:
    return "replies of recipients: " + ", ".join(f"{count} {name}" for name, count in replies.items())


def _write(scene: PairScene, outcome: str, seed: int, replies: dict[str, int], problems: list[str]) -> None:
    date = datetime.date.today().isoformat()
    RESULTS.mkdir(exist_ok=True)
    result = "\n".join(problems) or "The records agree."
    (RESULTS / f"{date}-crash-cloud-upstream-{outcome}.md").write_text(
        f"# Killed and cut under load through the Cloud API behind ({outcome}), {date}\n\n"
        f"Taken by `make test-crash` at {machine.commit()}, seed {seed}, "
        f"`TIDINGS_CLOUD_UNKNOWN_OUTCOME={outcome}`: messages of v1 at {RATE:.0f} a second to A, which sends them "
        "through the Cloud API of B to robots; both on MariaDB (`innodb_flush_log_at_trx_commit=1`), everything on one "
        "machine. In parentheses: kills or cuts of the phase.\n\n"
        f"{table.markdown(scene)}\n\n{table.NOTES}\n\n{_describe(replies)}\n\n{result}\n"
    )
