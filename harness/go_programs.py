"""Programs that tests build from Go modules, once, into `build/go`. This needs Go."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import shutil
import subprocess
from pathlib import Path

from harness.packages import PackageMissing

BUILD = Path(__file__).parent.parent / "build" / "go"


@dataclasses.dataclass(frozen=True, slots=True)
class GoProgram:
    """Program of a Go module, at one version."""

    module: str
    version: str

    def built(self) -> str:
        """Return the path of the program, which is built if missing; that takes minutes. Raises `PackageMissing`."""
        name = self.module.rpartition("/")[2]
        program = BUILD / "bin" / f"{name}-{self.version}"
        BUILD.mkdir(parents=True, exist_ok=True)
        with (BUILD / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():
                self._build(name, program)
        return str(program)

    def _build(self, name: str, program: Path) -> None:
        wanted = f"{self.module}@{self.version}"
        if shutil.which("go") is None:
            raise PackageMissing(f"the tests of S3 need Go, to build {wanted}")
        print(f"building for the tests: {wanted} ...", flush=True)
        scratch = BUILD / f"{name}.scratch"
        environment = {
            **os.environ,
            "GOPATH": str(scratch),
            "GOBIN": str(scratch / "bin"),
            "GOFLAGS": "-modcacherw",
        }
        done = subprocess.run(["go", "install", wanted], env=environment, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise PackageMissing(f"building {self.module} failed: {last}")
        program.parent.mkdir(exist_ok=True)
        (scratch / "bin" / name).rename(program)
        shutil.rmtree(scratch, ignore_errors=True)
