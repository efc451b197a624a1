"""Machine for the tests of releases: a bare Debian where one can be made, otherwise a directory of this machine."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BARE = ROOT / ".ci" / "bare-machine"
DRIVER = "tests/release/first_message.py"
SECONDS = 1800  # timeout of all steps of one test


@dataclasses.dataclass(frozen=True)
class Step:
    """One call of `first_message.py`."""

    words: Sequence[str]
    offline: bool = False  # whether it runs in a separate network namespace


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where steps are executed. Files in `given` are at `path(name)` there."""

    given: Path
    scratch: Path  # empty directory of this machine
    obstacle: str  # why there is no bare machine; empty if there is one

    def path(self, name: str) -> str:
        return str(self.given / name) if self.obstacle else f"/srv/given/{name}"

    @property
    def work(self) -> str:
        """Directory that is empty at first."""
        return str(self.scratch / "work") if self.obstacle else "/root/work"

    @property
    def pipx(self) -> str:
        return str(self.scratch / "pipx" / "bin" / "pipx") if self.obstacle else "/usr/bin/pipx"

    def execute(self, steps: Sequence[Step]) -> list[Any]:
        """Execute the steps in order, and return their results. Raises `AssertionError` with the end of the output."""
        lines = [f"mkdir {self.work}", self._install_pipx()]
        lines += [f"{self._isolation(step)} python3 {DRIVER} {shlex.join(step.words)}".strip() for step in steps]
        script = " && ".join(lines)
        command = ["bash", "-c", script] if self.obstacle else [str(BARE), script]
        environment = {**os.environ, "BARE_GIVEN": str(self.given)}
        if self.obstacle:
            kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDINGS_", "WA_"))}
            places = {"PIPX_HOME": str(self.scratch / "home"), "PIPX_BIN_DIR": str(self.scratch / "bin")}
            environment = {**kept, **places}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace", timeout=SECONDS
        )
        assert done.returncode == 0, f"{(done.stdout + done.stderr)[-6000:]}"
        results = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        assert len(results) == len(steps)
        return [json.loads(line) for line in results]

    def _install_pipx(self) -> str:
        if self.obstacle:
            venv = self.scratch / "pipx"
            return f"python3 -m venv {venv} && {venv}/bin/pip install --quiet pipx"
        return "{ apt-get -q update && apt-get -q install -y --no-install-recommends pipx; } >/dev/null"

    def _isolation(self, step: Step) -> str:
        # As root the default ports are free in a new network namespace.
        return "unshare --net" if step.offline and os.getuid() == 0 else ""


def find(given: Path, scratch: Path) -> Machine:
    """Return the machine, and print which one it is."""
    done = subprocess.run([str(BARE), "--possible"], capture_output=True, text=True)
    obstacle = done.stdout.strip() if done.returncode else ""
    place = f"on this machine, since no bare Debian can be made: {obstacle}" if obstacle else "on a bare Debian"
    print(f"\n        {place}", flush=True)
    return Machine(given, scratch, obstacle)
