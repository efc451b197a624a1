"""Choice of the Python for a new environment by `.ci/find-python` and `.ci/make-venv`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Programs that the scripts use. The directories of the system have other Pythons.
TOOLS = ("awk", "cat", "cut", "dirname", "grep", "head", "mkdir", "rm", "sed", "sh", "sort", "tail")
PGO = "--enable-optimizations --with-lto"
# Runs the script in its arguments as an interpreter of another version or build would.
OTHER = """\
import runpy, sys, sysconfig
from pathlib import Path
sys.argv.pop(0)
sys.executable, sys.version_info = {path!r}, ({version}, "final", 0)
vars(sys).pop("_jit", None)
variables = sysconfig.get_config_vars()
for name in ("PY_CFLAGS", "PY_CFLAGS_NODIST", "PY_CORE_CFLAGS", "PY_LDFLAGS_NODIST", "PY_CORE_LDFLAGS"):
    variables[name] = ""
variables.update({variables!r})
runpy.run_path(sys.argv[0], run_name="__main__") if {runs!r} else sys.exit("not an interpreter")
"""
# Makes the "environment": a file that names the Python.
WRAPPER = """#!/bin/sh
if [ "$1" = -m ]; then mkdir -p "$3/bin" && echo "{path}" >"$3/bin/python"; exit; fi
shift
exec "{python}" -I "{driver}" "$@"
"""


class Machine:
    """Directory of interpreters of which each pretends to have another version and build."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.bin, tools = directory / "bin", directory / "tools"
        self.bin.mkdir()
        tools.mkdir()
        for name in TOOLS:
            found = shutil.which(name, path="/usr/bin:/bin")
            assert found is not None, f"{name} is not installed"
            (tools / name).symlink_to(found)
        self.path = f"{self.bin}:{directory / 'none'}:{tools}"

    def add(self, name: str, version: str, arguments: str = "", *, runs: bool = True, **variables: object) -> Path:
        """Add an interpreter.

        version: numbers, separated by commas.
        arguments: of its `configure`; `Debian` for one whose flags were removed.
        """
        path, driver = self.bin / name, self.directory / f"{name}.py"
        flag = "" if arguments == "Debian" else "-fprofile-use -fprofile-correction"
        variables = {"CONFIG_ARGS": arguments, "PGO_PROF_USE_FLAG": flag, "Py_GIL_DISABLED": 0, **variables}
        variables["CONFIG_ARGS"] = f"'--prefix=/usr' {arguments}"
        driver.write_text(OTHER.format(path=str(path), version=version, variables=variables, runs=runs))
        path.write_text(WRAPPER.format(path=path, python=sys.executable, driver=driver))
        path.chmod(0o755)
        return path

    def run(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a script of `.ci` with these interpreters on the PATH."""
        command = [ROOT / ".ci" / script, *words]
        return subprocess.run(command, env={"PATH": self.path}, capture_output=True, text=True)

    def found(self, *options: str) -> list[str]:
        """Return the names of the interpreters that can be used, the best first."""
        done = self.run("find-python", *options)
        assert done.returncode == 0, done.stderr
        return [Path(line.split("\t")[0]).name for line in done.stdout.splitlines()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_newest_optimised_python_is_preferred(machine: Machine) -> None:
    machine.add("python3.14", "3, 14, 0")
    machine.add("python3.12", "3, 12, 9", PGO)
    machine.add("python3.13", "3, 13, 1", "Debian")
    machine.add("python3.11", "3, 11, 14", PGO)
    assert machine.found() == ["python3.13", "python3.12", "python3.11", "python3.14"]


def test_the_best_build_of_each_tested_version_is_listed_from_the_newest_on(machine: Machine) -> None:
    machine.add("python3.14", "3, 14, 0")
    machine.add("python3.11", "3, 11, 9")
    machine.add("python3.12", "3, 12, 9", PGO)
    machine.add("python3", "3, 11, 2", PGO)
    machine.add("python3.15", "3, 15, 2", PGO)
    machine.add("python3.16", "3, 16, 0", PGO)
    assert machine.found("--tested") == ["python3.15", "python3.14", "python3.12", "python3"]


def test_a_version_that_is_not_tested_is_the_last_choice(machine: Machine) -> None:
    machine.add("python3", "3, 16, 0", PGO)
    assert machine.found() == ["python3"]
    machine.add("python3.11", "3, 11, 2")
    assert machine.found() == ["python3.11", "python3"]


def test_pythons_that_cannot_run_tidings_are_reported_with_the_reason(machine: Machine) -> None:
    machine.add("python3.10", "3, 10, 4", PGO)
    machine.add("python3.14", "3, 14, 0", PGO, Py_GIL_DISABLED=1)
    machine.add("python", "2, 7, 18", runs=False)
    assert machine.found() == []
    errors = machine.run("find-python").stderr.splitlines()
    assert errors == [
        f"{machine.bin}/python3.14: CPython 3.14.0 (PGO, LTO, no JIT) is free-threaded",
        f"{machine.bin}/python3.10: CPython 3.10.4 (PGO, LTO, no JIT) is older than 3.11",
    ]
    made = machine.run("make-venv", str(machine.directory / "environment"))
    assert made.returncode == 1
    assert "Tidings needs CPython 3.11 or newer on the PATH; found " in made.stderr
    assert "python3.10: CPython 3.10.4 (PGO, LTO, no JIT) is older than 3.11" in made.stderr


def test_the_same_python_under_two_names_is_listed_once(machine: Machine) -> None:
    machine.add("python3.12", "3, 12, 1", PGO)
    (machine.bin / "python3").symlink_to("python3.12")
    assert machine.found() == ["python3.12"]


def test_an_environment_is_made_with_the_best_python_or_the_given_one(machine: Machine) -> None:
    slow, fast = machine.add("python3.14", "3, 14, 0"), machine.add("python3.12", "3, 12, 9", PGO)
    environment = machine.directory / "build" / "environment"
    done = machine.run("make-venv", str(environment))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"making {environment} with CPython 3.12.9 (PGO, LTO, no JIT), {fast}\n"
    assert (environment / "bin" / "python").read_text() == f"{fast}\n"
    assert machine.run("make-venv", str(environment), str(slow)).returncode == 0
    assert (environment / "bin" / "python").read_text() == f"{slow}\n"
    assert [path.name for path in environment.parent.iterdir()] == ["environment"]
