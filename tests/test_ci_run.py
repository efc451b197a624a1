"""Commands that `.ci/run` runs, on a bare machine or on this one, with one version of Python or two."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.test_find_python import ROOT, Machine

# Records its arguments. Fails if `$FAILING` is in them.
RECORDER = """#!/bin/sh
echo "{name} $BARE_SUITE $*" >>"{log}"
case "$*" in *"$FAILING"*) exit 1 ;; esac
"""
# Reports whether a machine of the suite can be made; runs no command.
BARE = """#!/bin/sh
[ "$1" != --possible ] || case " $POSSIBLE " in
*" ${{BARE_SUITE:-own}} "*) exit 0 ;;
*) echo "no ${{BARE_SUITE:-own}} machine"; exit 1 ;;
esac
"""
OURS = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Checkout with the script, whose make, checks and bare machine are recorded in the file `log`."""
    made = Machine(tmp_path)
    ci, log = tmp_path / ".ci", tmp_path / "log"
    ci.mkdir()
    for name in ("run", "find-python"):
        shutil.copy(ROOT / ".ci" / name, ci)
    (tmp_path / "tidings").symlink_to(ROOT / "tidings")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    recorder = RECORDER.format(name="{name}", log=log)
    for path, text in (
        (ci / "check", recorder.format(name="check")),
        (made.bin / "make", recorder.format(name="make")),
        (ci / "bare-machine", BARE.format() + recorder.format(name="bare").partition("\n")[2]),
    ):
        path.write_text(text)
        path.chmod(0o755)
    return made


def run(
    machine: Machine, possible: str = "", failing: str = "nothing", options: Sequence[str] = ("--pythons",)
) -> tuple[int, list[str], str]:
    """Run the script; return its exit status, the recorded commands and its output.

    possible: suites of which a bare machine can be made; `own` for the one of this machine.
    failing: part of the command that fails.
    """
    environment = {"PATH": machine.path, "POSSIBLE": possible, "FAILING": failing}
    command = [machine.directory / ".ci" / "run", *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    log = machine.directory / "log"
    return done.returncode, log.read_text().splitlines() if log.exists() else [], done.stdout


def test_a_bare_machine_runs_everything_and_one_of_debian_testing_a_selection(machine: Machine) -> None:
    status, commands, _ = run(machine, possible="own testing")
    first, second = "\n".join(commands).split("bare testing ")
    assert status == 0
    assert first.startswith("bare  make --no-print-directory .venv/.dev && .ci/check && make")
    assert first.endswith("--no-print-directory test\n")
    assert "make --no-print-directory test-python" in second


@pytest.mark.parametrize("possible", ["", "own testing"])
def test_without_the_option_the_tests_run_on_one_python(machine: Machine, possible: str) -> None:
    status, commands, _ = run(machine, possible, options=())
    assert status == 0
    assert not [command for command in commands if "test-python" in command]


def test_a_machine_without_debian_testing_skips_the_second_python_with_the_reason(machine: Machine) -> None:
    status, commands, output = run(machine, possible="own")
    assert (status, len(commands)) == (0, 1)
    assert output == "no tests on a second Python: no testing machine\n"


def test_without_a_bare_machine_the_oldest_other_python_runs_the_selection(machine: Machine) -> None:
    machine.add("python3", f"{OURS.replace('.', ', ')}, 1", "--enable-optimizations")
    older = machine.add("python3.11", "3, 11, 4") if OURS != "3.11" else machine.add("python3.12", "3, 12, 4")
    status, commands, output = run(machine)
    assert (status, output) == (0, "not on a bare machine: no own machine\n")
    assert commands == [
        "make  --no-print-directory .venv/.dev",
        "check  ",
        "make  --no-print-directory test",
        f"make  --no-print-directory test-python VENV=build/second PYTHON={older}",
    ]


def test_a_machine_with_one_version_of_python_runs_the_tests_once(machine: Machine) -> None:
    machine.add("python3", f"{OURS.replace('.', ', ')}, 1")
    status, commands, output = run(machine)
    assert (status, commands[-1]) == (0, "make  --no-print-directory test")
    assert output.endswith(f"no tests on a second Python: only {OURS} was found\n")


@pytest.mark.parametrize("possible", ["", "own testing"])
def test_a_failure_ends_the_run(machine: Machine, possible: str) -> None:
    status, commands, _ = run(machine, possible, failing=".venv/.dev")
    assert (status, len(commands)) == (1, 1)
