"""`make test-crash`, second part: databases that are full, refuse, hang or disconnect while messages flow.

No process dies. Sender, recipients and webhook must agree on every message as after kills. In addition no message fails
because of the fault, health reports it within 10 s, and messages flow again within 5 s of its end.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from harness import database_server
from harness.client import Business
from harness.installation import Installation, keep_logs
from harness.mariadb import MariaDB
from harness.sink_process import SinkProcess
from tests.crash import faults, table
from tests.crash.faults import Disk, During
from tests.crash.scene import ENVIRONMENT, SLOWER, Scene, recovery_seconds, usual_seconds

RATE = 40.0
# Seconds of load in a phase in addition to those of its fault.
AROUND = 4.0
RECOVERY_SECONDS = 5.0
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"

BUSINESS, NETWORK = ("webapp",), ("network",)
MARIADB_FAULTS: tuple[tuple[str, During], ...] = (
    ("business: password changed", During(faults.password_changed("business"), BUSINESS)),
    ("network: password changed", During(faults.password_changed("network"), NETWORK, stored=True)),
    ("business: questions limited", During(faults.questions_limited("business"), BUSINESS)),
    ("network: questions limited", During(faults.questions_limited("network"), NETWORK, stored=True)),
    ("business: connections limited", During(faults.connections_limited("business"), BUSINESS)),
    ("network: connections limited", During(faults.connections_limited("network"), NETWORK, stored=True)),
    ("business: queries killed", During(faults.queries_killed("business"), ())),
    ("network: queries killed", During(faults.queries_killed("network"), (), stored=True)),
    ("business: tables locked", During(faults.tables_locked("business"), BUSINESS)),
    ("network: tables locked", During(faults.tables_locked("network"), NETWORK, stored=True)),
    ("both: read-only", During(faults.read_only, ())),
    ("both: hung for 30 s", During(faults.hung, (*BUSINESS, *NETWORK), seconds=30.0)),
)


@pytest.mark.whole_system
async def test_a_refusing_or_hanging_mariadb_loses_no_message(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    mariadb = database_server.make(flush_log=1, buffer_pool_mb=256)
    mariadb.start()
    try:
        await _run("mariadb", tmp_path, request, mariadb, faults.create_users(mariadb), MARIADB_FAULTS)
    finally:
        mariadb.remove()


@pytest.mark.whole_system
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file system that is full")
async def test_a_full_disk_loses_no_message(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with contextlib.ExitStack() as mounts:
        disks = {
            name: mounts.enter_context(Disk(tmp_path / name).mounted()) for name in ("business", "network", "robots")
        }
        environment = {
            "TIDINGS_BUSINESS_DB_URL": f"sqlite+aiosqlite:///{tmp_path}/business/business.db",
            "TIDINGS_NETWORK_DB_URL": f"sqlite+aiosqlite:///{tmp_path}/network/network.db",
            "TIDINGS_NETWORK_BLOB_DIR": f"{tmp_path}/network/blobs",
            "TIDINGS_HANDSET_DB_URL": f"sqlite+aiosqlite:///{tmp_path}/robots/robots.db",
        }
        told_by = {"business": BUSINESS, "network": NETWORK, "robots": ()}
        phases = [
            (f"{name}: disk full", During(disk.full, told_by[name], stored=name == "network"))
            for name, disk in disks.items()
        ]
        await _run("disk", tmp_path, request, None, environment, phases)


@pytest.mark.whole_system
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file system that is full")
async def test_a_full_disk_under_mariadb_loses_no_message(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """A row that no longer fits into a file is refused (1021, 1114) or waits: the server decides."""
    with Disk(tmp_path / "mariadb", faults.MARIADB_DISK_BYTES).mounted() as disk:
        mariadb = database_server.make(flush_log=1, buffer_pool_mb=64, parent=disk.directory)
        mariadb.start()
        try:
            phases = [("mariadb: disk full", During(disk.full, (), seconds=20.0, stored=True))]
            await _run("mariadb-disk", tmp_path, request, mariadb, {}, phases)
        finally:
            mariadb.remove()


async def _run(
    title: str,
    directory: Path,
    request: pytest.FixtureRequest,
    mariadb: MariaDB | None,
    environment: Mapping[str, str],
    phases: Sequence[tuple[str, During]],
) -> None:
    options = request.config.option
    seed = options.seed if options.seed is not None else secrets.randbelow(1_000_000)
    print(f"\nseed {seed}", flush=True)
    async with (
        Installation(directory, mariadb, {**ENVIRONMENT, **environment}) as installation,
        SinkProcess(directory, installation.webhook_secret, verify_every=1) as sink,
    ):
        await installation.start()
        scene = Scene(installation, sink, Business(installation.api_port), random.Random(seed))
        await scene.open()
        settled = True
        try:
            for name, during in phases:
                if options.only and options.only not in name:
                    continue
                await scene.play(name, int(RATE * (during.seconds + AROUND)), RATE, during)
                settled &= await scene.settle()
                print(f"  {table.describe_phase(scene.phases[-1])}{'' if settled else ', NOT SETTLED'}", flush=True)
        finally:
            if options.keep:
                keep_logs(directory, Path(options.keep))
    print(f"\n{table.aligned(scene)}\n\n{table.NOTES}", flush=True)
    problems = table.problems(scene, settled=settled)
    for phase in scene.phases:
        recovery = recovery_seconds(phase, scene)
        if recovery is None or recovery > RECOVERY_SECONDS + SLOWER * usual_seconds(phase, scene):
            problems.append(f"{phase.name}: back after {'never' if recovery is None else f'{recovery:.1f} s'}")
    if not options.only:
        _write(title, scene, seed, problems)
    assert not problems, "\n" + "\n".join(problems)


def _write(title: str, scene: Scene, seed: int, problems: list[str]) -> None:
    date = datetime.date.today().isoformat()
    (RESULTS / f"{date}-faults-{title}.md").write_text(
        f"# Faults of the database under load ({title}), {date}\n\n"
        f"Taken by `make test-crash`, seed {seed}: messages to robots at {RATE:.0f} a second, everything on one "
        "machine; each fault holds for 12 s unless its name says otherwise, and recovery counts from its end.\n\n"
        f"{table.markdown(scene)}\n\n{table.NOTES}\n\n{chr(10).join(problems) or 'The ledger balances.'}\n"
    )
