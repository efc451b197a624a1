"""A running process leaves a record of its settings for the doctor, without secrets."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli import known_variables, process_records
from cli.doctor.configuration import RunningProcessCheck
from cli.doctor.findings import Level
from cli.doctor.plan import CheckPlan, DoctorOptions

SECRET = "a secret of 20 bytes"
VARIABLES = {
    "TIDINGS_SHARDS": "2",
    "TIDINGS_LINK_KEY": SECRET,
    "TIDINGS_BUSINESS_DB_URL": f"mysql+aiomysql://user:{SECRET}@db/business",
    "TIDINGS_MASTER_KEY_COMMAND": f"fetch --token {SECRET}",
    "WA_DB_PASSWORD_FILE": "/run/secrets/database",
    "HOME": "/root",
}


def test_a_record_exists_while_its_process_runs_and_contains_no_secret(tmp_path: Path) -> None:
    with process_records.recorded("webapp", tmp_path, VARIABLES):
        (path,) = (tmp_path / "processes").iterdir()
        assert path.stat().st_mode & 0o777 == 0o600
        assert SECRET not in path.read_text()
        record = process_records.find("webapp", tmp_path)
        assert record is not None
        assert record.pid == os.getpid()
        assert record.variables == {"TIDINGS_SHARDS": "2", "WA_DB_PASSWORD_FILE": "/run/secrets/database"}
        assert record.withheld == ["TIDINGS_BUSINESS_DB_URL", "TIDINGS_LINK_KEY", "TIDINGS_MASTER_KEY_COMMAND"]
        assert process_records.find("coreapp", tmp_path) is None
    assert process_records.find("webapp", tmp_path) is None
    assert not list((tmp_path / "processes").iterdir())


def test_the_record_of_a_killed_process_is_ignored_and_deleted(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from cli import process_records\n"
        "with process_records.recorded('network', pathlib.Path(sys.argv[1]), {}):\n"
        "    print('kept', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "kept\n"
        assert process_records.find("network", tmp_path) is not None
        child.send_signal(signal.SIGKILL)
    assert len(list((tmp_path / "processes").iterdir())) == 1
    assert process_records.find("network", tmp_path) is None
    assert not list((tmp_path / "processes").iterdir())


def test_a_process_that_starts_at_the_same_time_does_not_delete_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    looks: list[object] = []

    def look_first(file: int, operation: int) -> None:
        if not looks:
            looks.append(True)
            looks.append(process_records.find("network", tmp_path))
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", look_first)
    with process_records.recorded("network", tmp_path, VARIABLES):
        assert looks == [True, None]
        record = process_records.find("network", tmp_path)
        assert record is not None
        assert record.pid == os.getpid()


def test_an_unwritable_record_directory_stops_no_process(tmp_path: Path) -> None:
    (tmp_path / "processes").write_text("in the way")
    with process_records.recorded("webapp", tmp_path, {}):
        assert process_records.find("webapp", tmp_path) is None


def test_every_variable_whose_value_is_secret_is_withheld(tmp_path: Path) -> None:
    with process_records.recorded("webapp", tmp_path, dict.fromkeys(known_variables.SECRETS, SECRET)):
        record = process_records.find("webapp", tmp_path)
        assert record is not None
        assert set(record.withheld) == known_variables.SECRETS


async def test_the_doctor_reads_the_settings_of_the_running_process(tmp_path: Path) -> None:
    variables = {"TIDINGS_DATA_DIR": str(tmp_path), "TIDINGS_MESSAGES_RATE": "12", "TIDINGS_LINK_KEY": SECRET}
    here = {"TIDINGS_DATA_DIR": str(tmp_path), "TIDINGS_MESSAGES_RATE": "fast", "TIDINGS_SHARDS": "4"}
    with process_records.recorded("webapp", tmp_path, variables):
        plan = CheckPlan({**here, "TIDINGS_MESSAGES_RATE": "7"}, DoctorOptions(["webapp"], quick=True))
        found = [finding for group in plan.groups() for finding in await group.first.run()]
        await plan.close()
        levels = {finding.check: finding.level for finding in found}
        assert levels["configuration"] is Level.FINE
        record = process_records.find("webapp", tmp_path)
        assert record is not None
        texts = [finding.text for finding in await RunningProcessCheck(record, here).run()]
    assert texts == [
        f"process {os.getpid()} was started with TIDINGS_LINK_KEY, which is not set here",
        f"TIDINGS_MESSAGES_RATE is 'fast' here; process {os.getpid()} was started with '12'",
        f"TIDINGS_SHARDS is '4' here; process {os.getpid()} was started without it",
    ]


async def test_the_doctor_accepts_what_up_generates_and_another_spelling_of_a_directory(tmp_path: Path) -> None:
    console = {"TIDINGS_CONSOLE_KEY": SECRET, "TIDINGS_CONSOLE_LINK": SECRET}
    with process_records.recorded("webapp", tmp_path, {"TIDINGS_DATA_DIR": str(tmp_path), **console}):
        record = process_records.find("webapp", tmp_path)
        assert record is not None
        here = {"TIDINGS_DATA_DIR": f"{tmp_path}/../{tmp_path.name}"}
        (finding,) = await RunningProcessCheck(record, here).run()
        assert finding.level is Level.FINE
        (finding,) = await RunningProcessCheck(record, {"TIDINGS_DATA_DIR": str(tmp_path / "other")}).run()
        assert "TIDINGS_DATA_DIR is" in finding.text
