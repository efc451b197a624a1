"""Programs that tests build from Rust packages, into `build/rust`. This needs Cargo."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

from harness import packages
from harness.packages import PackageMissing

BUILD = Path(__file__).parents[1] / "build" / "rust"
# Cargo's lock file without the lines that name the registry.
PINNED = "crates.lock"
# Libraries that crates for TLS are linked with.
_HEADER, _HEADER_PACKAGE = Path("/usr/include/openssl/ssl.h"), "libssl-dev"
_TOOLS = {"cc": "gcc", "pkg-config": "pkg-config"}


@dataclasses.dataclass(frozen=True, slots=True)
class CargoProgram:
    """Program of a Rust package in this repository."""

    folder: Path  # with Cargo.toml, `PINNED` and src

    def built(self) -> str:
        """Return the path of the program, built from the pinned crates; the first time takes minutes.

        Raises `PackageMissing`.
        """
        name = re.search(r'^name = "(.+)"$', (self.folder / "Cargo.toml").read_text(), re.M)
        assert name is not None
        if shutil.which("cargo") is None:
            raise PackageMissing(f"the tests need Cargo, to build {name[1]}")
        packages.require(_TOOLS, _TOOLS)
        packages.require_file(_HEADER, _HEADER_PACKAGE)
        project = BUILD / name[1]
        project.mkdir(parents=True, exist_ok=True)
        with (BUILD / f"{name[1]}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Times of files are kept, by which Cargo recognises changes.
            shutil.copytree(self.folder, project, dirs_exist_ok=True)
            self._pin(project)
            _cargo(project, "build", "--locked", "--quiet")
        return str(BUILD / "target" / "debug" / name[1])

    def _pin(self, project: Path) -> None:
        """Write Cargo's lock file, with the name of the registry as Cargo itself writes it."""
        pinned, locked = (project / PINNED).read_text(), project / "Cargo.lock"
        if not locked.exists():
            _cargo(project, "generate-lockfile", "--quiet")
        source = re.search(r"^source = .*$", locked.read_text(), re.M)
        assert source is not None
        locked.write_text(re.sub(r"^checksum = ", f"{source[0]}\nchecksum = ", pinned, flags=re.M))


def _cargo(project: Path, *words: str) -> None:
    environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILD / "target")}
    done = subprocess.run(["cargo", *words], cwd=project, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise PackageMissing(f"cargo {words[0]} of {project.name} failed: {done.stderr.strip()[-500:]}")
