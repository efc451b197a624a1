"""`tidings doctor`: the checks that are run, its output and exit status, and the checks of this machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cli.commands import doctor
from cli.doctor import findings, machine
from cli.doctor.findings import CheckGroup, Finding, Level
from cli.doctor.plan import CheckPlan
from tidings.config import env
from tidings.observability.interpreter import InterpreterBuild


class Scripted:
    """Check with scripted findings or a scripted error."""

    def __init__(self, name: str, level: Level = Level.FINE, failure: Exception | None = None) -> None:
        self.name = name
        self._level = level
        self._failure = failure
        self.runs = 0

    async def run(self) -> Sequence[Finding]:
        self.runs += 1
        if self._failure is not None:
            raise self._failure
        return [Finding(self.name, self._level, "found")]


async def test_an_error_of_the_first_check_skips_the_rest_of_its_group() -> None:
    skipped, run = Scripted("skipped"), Scripted("run")
    groups = [
        CheckGroup(Scripted("broken", Level.ERROR), [skipped]),
        CheckGroup(Scripted("poor", Level.WARNING), [run]),
    ]
    reported: list[tuple[str, int]] = []
    found = await findings.run_groups(groups, report=lambda new: reported.append((new[0].check, run.runs)))
    assert [finding.check for finding in found] == ["broken", "poor", "run"]
    # At once, before the next check.
    assert reported == [("broken", 0), ("poor", 0), ("run", 1)]
    assert (skipped.runs, run.runs) == (0, 1)
    assert findings.worst(found) is Level.ERROR
    assert findings.worst(found[1:]) is Level.WARNING
    assert findings.worst([]) is Level.FINE


async def test_a_failing_or_hanging_check_becomes_a_finding() -> None:
    class Hanging(Scripted):
        async def run(self) -> Sequence[Finding]:
            await asyncio.Event().wait()
            return []

    broken = Scripted("broken", failure=RuntimeError("a defect"))
    wrong = Scripted("wrong", failure=env.SettingsError("TIDINGS_X is wrong"))
    found = await findings.run_groups(
        [CheckGroup(broken), CheckGroup(wrong), CheckGroup(Hanging("slow"))], seconds=0.05
    )
    assert [(finding.check, finding.level) for finding in found] == [
        ("broken", Level.ERROR),
        ("wrong", Level.ERROR),
        ("slow", Level.ERROR),
    ]
    assert "RuntimeError: a defect" in found[0].text
    assert found[1].text == "TIDINGS_X is wrong"
    assert "no result within" in found[2].text


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """Restore the log handlers, which the command replaces."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    return doctor.run(parser.parse_args(words))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("TIDINGS_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("TIDINGS_REGISTRATION_KEY", "a key that must not be printed")
    monkeypatch.setenv("TIDINGS_NETWORK_CONNECTIONS", "10")
    monkeypatch.setenv("TIDINGS_NETWORK_HTTP_CONNECTIONS", "10")
    return tmp_path


def test_the_exit_status_is_that_of_the_worst_finding_and_no_file_is_left(
    environment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = run("network", "--quick", "--json")
    found = json.loads(capsys.readouterr().out)
    by_check = {entry["check"]: entry for entry in found["findings"]}
    assert by_check["configuration"]["level"] == "fine"
    assert by_check["tables network"]["level"] == "error"
    assert by_check["python"]["text"].startswith(f"CPython {platform.python_version()} (")
    assert by_check["tables network"]["remedy"].startswith("run `tidings migrate`")
    assert (status, found["status"]) == (2, "error")
    monkeypatch.setenv("TIDINGS_NETWORK_IDLE_S", "soon")
    assert run("network", "--quick") == 2
    printed = capsys.readouterr().out
    assert "ERROR    configuration: TIDINGS_NETWORK_IDLE_S='soon' is not a number" in printed
    assert "         → correct the variable" in printed
    assert "a key that" not in printed
    assert not (environment / "secrets").exists()


@pytest.mark.parametrize(("errors", "words"), [(0, "0 errors"), (1, "1 error"), (2, "2 errors")])
def test_counts_are_singular_or_plural(
    environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    errors: int,
    words: str,
) -> None:
    checks = [*[Scripted("disk", Level.ERROR)] * errors, Scripted("python", Level.WARNING)]
    monkeypatch.setattr(CheckPlan, "groups", lambda self: [CheckGroup(check) for check in checks])
    run("--quick")
    assert capsys.readouterr().out.splitlines()[-1] == f"{words}, 1 warning, 0 fine"


def test_an_unknown_process_name_is_a_usage_error(environment: Path) -> None:
    with pytest.raises(SystemExit):
        run("handset")


@pytest.mark.parametrize(
    ("total", "free", "level"),
    [
        (100 * env.MIB, 10 * env.MIB, Level.ERROR),
        (100_000 * env.MIB, 90 * env.MIB, Level.ERROR),
        (100_000 * env.MIB, 900 * env.MIB, Level.WARNING),
        (100_000 * env.MIB, 2000 * env.MIB, Level.FINE),
        (1000 * env.MIB, 500 * env.MIB, Level.FINE),
    ],
)
def test_a_nearly_full_disk_is_reported(tmp_path: Path, total: int, free: int, level: Level) -> None:
    assert machine.DiskSpaceCheck(tmp_path, reserve=100 * env.MIB).evaluate(total, free).level is level


@pytest.mark.parametrize(
    ("rate", "sync_ms", "level"), [(500.0, 1.0, Level.FINE), (5.0, 1.0, Level.WARNING), (500.0, 50.0, Level.WARNING)]
)
def test_a_slow_disk_is_a_warning(tmp_path: Path, rate: float, sync_ms: float, level: Level) -> None:
    assert machine.DiskSpeedCheck(tmp_path).evaluate(rate, sync_ms).level is level


@pytest.mark.parametrize(
    ("version", "pgo", "level", "text"),
    [
        ((3, 11, 7), False, Level.WARNING, "CPython 3.11.7 (no PGO, LTO, JIT off)"),
        ((3, 14, 1), True, Level.FINE, "CPython 3.14.1 (PGO, LTO, JIT off)"),
        ((3, 14, 1), None, Level.FINE, "CPython 3.14.1 (PGO not recorded, LTO, JIT off)"),
        ((3, 15, 2), True, Level.FINE, "CPython 3.15.2 (PGO, LTO, JIT off)"),
        ((3, 16, 0), True, Level.WARNING, "CPython 3.16.0 (PGO, LTO, JIT off)"),
    ],
)
def test_a_python_that_is_not_optimised_or_not_tested_is_a_warning(
    version: tuple[int, int, int], pgo: bool | None, level: Level, text: str
) -> None:
    build = InterpreterBuild("CPython", version, pgo, lto=True, jit="JIT off")
    finding = machine.InterpreterCheck().evaluate(build)
    assert (finding.level, finding.text, bool(finding.remedy)) == (level, text, level is Level.WARNING)


def test_a_python_with_the_jit_is_a_warning() -> None:
    build = InterpreterBuild("CPython", (3, 15, 2), None, lto=None, jit="JIT on")
    finding = machine.InterpreterCheck().evaluate(build)
    assert (finding.level, finding.remedy) == (Level.WARNING, "unset PYTHON_JIT: with the JIT, processes crash")


async def test_the_disk_speed_check_works_before_the_directory_exists(tmp_path: Path) -> None:
    (finding,) = await machine.DiskSpeedCheck(tmp_path / "not" / "yet").run()
    assert "MiB/s" in finding.text
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("limit", "level"), [(1024, Level.WARNING), (20_000, Level.FINE), (resource.RLIM_INFINITY, Level.FINE)]
)
def test_a_low_open_file_limit_is_a_warning_with_the_needed_number(limit: int, level: Level) -> None:
    finding = machine.OpenFilesCheck("webapp", 10_000).evaluate(limit)
    assert finding.level is level
    assert "10512" in finding.text
