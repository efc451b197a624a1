"""Scenarios of the reliability tests: an installation under load with successive disruptions, then its ledger."""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.client import Business
from harness.installation import Installation
from harness.mariadb import MariaDB
from harness.sink_process import SinkProcess
from tests.crash import table
from tests.crash.scene import ENVIRONMENT, SLOWER, Disruption, Phase, Scene, recovery_seconds, usual_seconds
from tests.security.figures import Figures, Form

FILE = Path(__file__).parents[2] / "build" / "reliability" / "figures.jsonl"
RATE = 40.0


async def run_scenario(
    directory: Path,
    phases: Sequence[tuple[str, float, Disruption]],
    *,
    test: str,
    recovery: float,
    mariadb: MariaDB | None = None,
    environment: Mapping[str, str] | None = None,
    installation: Installation | None = None,
) -> Scene:
    """Run the phases, each given as name, seconds and disruption, and check the ledger.

    recovery: maximum seconds from a failure to all statuses of a later message.

    Raises `AssertionError` with all problems.
    """
    seed = secrets.randbelow(1_000_000)
    print(f"\nseed {seed}", flush=True)
    installation = installation or Installation(directory, mariadb, {**ENVIRONMENT, **(environment or {})})
    sink_directory = directory / "sink"
    sink_directory.mkdir(parents=True)
    async with installation, SinkProcess(sink_directory, installation.webhook_secret, verify_every=1) as sink:
        await installation.start()
        scene = Scene(installation, sink, Business(installation.api_port), random.Random(seed))
        await scene.open()
        settled = True
        for name, seconds, disruption in phases:
            await scene.play(name, int(RATE * seconds), RATE, disruption)
            settled &= await scene.settle()
            print(f"  {table.describe_phase(scene.phases[-1])}{'' if settled else ', NOT SETTLED'}", flush=True)
    print(f"\n{table.aligned(scene)}\n", flush=True)
    problems = table.problems(scene, settled=settled)
    figures = Figures(Form(long=True), FILE)
    figures.test = test
    for phase in scene.phases:
        problems += _note(figures, phase, scene, recovery)
    assert not problems, "\n" + "\n".join(problems)
    return scene


def _note(figures: Figures, phase: Phase, scene: Scene, limit: float) -> list[str]:
    if not phase.troubles:
        return []
    seconds = recovery_seconds(phase, scene)
    if seconds is None:
        return [f"{phase.name}: never came back"]
    limit += SLOWER * usual_seconds(phase, scene)
    figure = figures.note(phase.name, "recovery", seconds, limit, "s")
    return [] if figure.is_within else [str(figure)]
