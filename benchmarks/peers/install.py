"""Install the software compared with Tidings into build/peers, apart from Tidings' own environment.

    python -m benchmarks.peers.install

Python packages come from a lock with hashes (requirements.lock), Go modules from go.mod and go.sum, servers from
Debian.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.rig.run import RunFailed
from harness import packages

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "peers"
PYTHON = BUILD / "bin" / "python"
PEERS, NATS_SERVER = BUILD / "bin" / "peers", BUILD / "bin" / "nats-server"
GO = Path(__file__).parent / "go"
LOCK = Path(__file__).with_name("requirements.lock")

# Programs, and their Debian packages.
REDIS = {"redis-server": "redis-server"}
MOSQUITTO = {"mosquitto": "mosquitto"}
# Debian installs PostgreSQL outside the PATH, by version.
POSTGRESQL = Path("/usr/lib/postgresql/15/bin")


def _install_python() -> None:
    mark, wanted = BUILD / ".python", hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == wanted:
        return
    _run([ROOT / ".ci" / "make-venv", BUILD])
    pip: list[str | Path] = [PYTHON, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _run([*pip, "--require-hashes", "-r", LOCK])
    mark.write_text(wanted)


def _build_go() -> None:
    if shutil.which("go") is None:
        raise RunFailed("the peers in Go need Go 1.26 or newer on the PATH (Debian's golang is too old)")
    # Modules are verified against go.sum, which is not written. Go rebuilds only what has changed.
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    _run(["go", "build", "-o", PEERS, "."], cwd=GO, environment=environment)
    _run(["go", "build", "-o", NATS_SERVER, "github.com/nats-io/nats-server/v2"], cwd=GO, environment=environment)


def _run(command: list[str | Path], *, cwd: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RunFailed(f"{' '.join(map(str, command))}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")


def install(*, with_mosquitto: bool = True) -> None:
    """Install whatever is missing. Raises `RunFailed` and `PackageMissing`.

    with_mosquitto: only deliveries need it
    """
    print("peers: servers from Debian ...", flush=True)
    wanted = REDIS | MOSQUITTO if with_mosquitto else REDIS
    packages.require(wanted, wanted)
    packages.require_file(POSTGRESQL / "postgres", "postgresql-15")
    print("peers: Python packages ...", flush=True)
    _install_python()
    print("peers: Go programs (the first time, a few minutes) ...", flush=True)
    _build_go()


def main() -> int:
    try:
        install()
    except (RunFailed, packages.PackageMissing) as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
