"""Separate podman for the tests: its images, containers, volumes, networks and settings are in one directory."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import packages

ROOT = Path(__file__).parents[2]
# podman-compose, which calls `podman`; installed from a separate lock file.
COMPOSE = ROOT / "build" / "deploy" / "bin" / "podman-compose"

# Settings for a machine without systemd and Docker, where many limits are lower than podman's defaults.
CONTAINERS_CONF = """
[containers]
log_driver = "k8s-file"
default_ulimits = ["nofile=20000:20000", "nproc=10000:10000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{directory}/tmp"
volume_path = "{directory}/volumes"
[network]
network_backend = "netavark"
network_config_dir = "{directory}/networks"
"""
STORAGE_CONF = """
[storage]
driver = "{driver}"
graphroot = "{directory}/storage"
runroot = "{directory}/run"
"""
# Before version 4.7 podman does not know the address of this machine under Docker's name for it.
WRAPPER = """#!/bin/bash
exec {podman} "${{@/host-gateway/{machine}}}"
"""
# Address of this machine for containers, the same as Docker's. `tests.deploy.__main__` adds it to an interface.
MACHINE = "172.17.0.1"
REGISTRIES_CONF = 'unqualified-search-registries = []\nshort-name-mode = "disabled"\n'


class CommandFailed(Exception):
    """A command failed. `str()` contains the end of its output."""


class CommandTimedOut(CommandFailed):
    """A command was killed because it took too long; `str()` is one line."""


def run(command: list[str], environment: Mapping[str, str], *, timeout: float = 300, both: bool = False) -> str:
    """Run a command and return its standard output. Raises `CommandFailed`.

    timeout: seconds.
    both: return standard error as well.
    """
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise CommandTimedOut(f"timed out after {timeout:g} s: {' '.join(command)[:300]}") from None
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-25:])
        raise CommandFailed(f"{' '.join(command)[:300]}: status {done.returncode}\n{said}")
    return done.stdout + done.stderr if both else done.stdout


def _driver(directory: Path) -> str:
    """Return the storage driver: `overlay` where it can be mounted, otherwise `vfs`, which works anywhere but takes
    minutes more."""
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        parts = {name: Path(scratch) / name for name in ("lower", "upper", "work", "merged")}
        for part in parts.values():
            part.mkdir()
        options = f"lowerdir={parts['lower']},upperdir={parts['upper']},workdir={parts['work']}"
        mounted = subprocess.run(
            ["mount", "-t", "overlay", "overlay", "-o", options, parts["merged"]], stderr=subprocess.DEVNULL
        )
        if mounted.returncode:
            return "vfs"
        subprocess.run(["umount", parts["merged"]], check=True)
        return "overlay"


class Podman:
    """Podman with all its data in `directory`, on disk: images take some hundred MiB each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "tmp").mkdir(parents=True, exist_ok=True)
        settings = {
            "CONTAINERS_CONF": ("containers.conf", CONTAINERS_CONF.format(directory=directory)),
            "CONTAINERS_STORAGE_CONF": (
                "storage.conf",
                STORAGE_CONF.format(directory=directory, driver=_driver(directory)),
            ),
            "CONTAINERS_REGISTRIES_CONF": ("registries.conf", REGISTRIES_CONF),
        }
        self.environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "TMPDIR": str(directory / "tmp")}
        wrapper = directory / "bin" / "podman"
        if not wrapper.exists():
            wrapper.parent.mkdir()
            wrapper.write_text(WRAPPER.format(podman=packages.find("podman"), machine=MACHINE))
            wrapper.chmod(0o755)
        self.environment["PATH"] = f"{wrapper.parent}:{self.environment['PATH']}"
        for variable, (name, content) in settings.items():
            (directory / name).write_text(content)
            self.environment[variable] = str(directory / name)

    def __call__(self, *words: str, timeout: float = 300, both: bool = False) -> str:
        """Run `podman …` with the options of `run`. Raises `CommandFailed`."""
        return run(["podman", *words], self.environment, timeout=timeout, both=both)

    def buildah(self, *words: str, timeout: float = 900) -> str:
        """Run `buildah …`. Raises `CommandFailed`."""
        return run(["buildah", *words], self.environment, timeout=timeout)

    def compose(self, files: Sequence[Path], *words: str, variables: Mapping[str, str], timeout: float = 600) -> str:
        """Run `podman-compose …`. Raises `CommandFailed`.

        files: a compose file, and others that override it.
        variables: values for ${…} in the files.
        """
        named = [word for file in files for word in ("--file", str(file))]
        command = [str(COMPOSE), *named, "--profile", "robots", "--profile", "monitoring", *words]
        return run(command, {**self.environment, **variables}, timeout=timeout)

    def json(self, *words: str) -> Any:
        """Return the result of `podman … --format json`."""
        return json.loads(self(*words, "--format", "json") or "null")

    def import_root(self, archive: Path, image: str) -> None:
        """Import a packed root directory as an image. All users may enter it, whatever the mode in the archive."""
        root, fixed = self.directory / "root", self.directory / "root.tar"
        root.mkdir()
        run(["tar", "-C", str(root), "-xf", str(archive)], self.environment)
        root.chmod(0o755)
        run(["tar", "-C", str(root), "-cf", str(fixed), "."], self.environment)
        run(["rm", "-rf", str(root)], self.environment)
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self("import", "--quiet", f"--change=ENV {path}", str(fixed), image)
        fixed.unlink()
