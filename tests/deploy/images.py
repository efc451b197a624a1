"""Images that the compose files use: ours from its Dockerfile, the others from Debian's packages.

No registry is needed. Debian's packages replace the official images under their names, with the same servers, and
start-up scripts that read the same variables.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.deploy.podman import ROOT, CommandFailed, Podman, run

STAND_INS = Path(__file__).parent / "stand_ins"
CACHE = Path(os.environ.get("BARE_CACHE", "/var/cache/tidings"))

OURS = "localhost/tidings:latest"
DEBIAN = "docker.io/library/debian:bookworm-slim"
PYTHON = "docker.io/library/python:3.14-slim-bookworm"
# Suite of Debian whose Python has the version of `PYTHON`.
PYTHON_SUITE = "testing"
# Built by the recipe in `stand_ins`.
SERVERS = {
    "mariadb": "docker.io/library/mariadb:10.11",
    "redis": "docker.io/library/redis:7.0",
    "haproxy": "docker.io/library/haproxy:2.6",
    "prometheus": "docker.io/prom/prometheus:v2.53.5",
}


# Variables that make the compose files use the stand-ins instead of images with digests.
VARIABLES = {
    "TIDINGS_DATABASE_IMAGE": SERVERS["mariadb"],
    "TIDINGS_REDIS_IMAGE": SERVERS["redis"],
    "TIDINGS_PROXY_IMAGE": SERVERS["haproxy"],
    "TIDINGS_PROMETHEUS_IMAGE": SERVERS["prometheus"],
}


class NoBase(Exception):
    """Missing base: this machine cannot make a root directory of Debian. `str()` gives the reason."""


def main() -> int:
    """Make all images in the directory that the command line names. Prints an error as one line."""
    begun = time.monotonic()
    try:
        prepare(Podman(Path(sys.argv[1])), lambda line: print(f"{time.monotonic() - begun:5.0f} s  {line}", flush=True))
    except (NoBase, CommandFailed) as error:
        print(f"make test-deploy: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(podman: Podman, say: Callable[[str], None]) -> None:
    """Make all images in the storage of `podman`. Raises `NoBase` and `CommandFailed`."""
    podman.import_root(_debian(podman.environment), DEBIAN)
    podman.import_root(_debian(podman.environment, PYTHON_SUITE), PYTHON)
    say(f"image   {PYTHON}: a Debian {PYTHON_SUITE} made with debootstrap")
    for name, image in SERVERS.items():
        made = _server(podman, name, image)
        say(f"image   {image}: Debian's {name}, {'made' if made else 'from the cache'}")
    build_ours(podman)
    (described,) = podman.json("image", "inspect", OURS)
    say(f"image   {OURS}: from docker/Dockerfile, {described['Size'] / 1e6:.0f} MB with its Debian")


def build_ours(podman: Podman) -> None:
    """Build our image from the unchanged Dockerfile, with the package sources of this machine's pip."""
    pip = podman.directory / "pip.conf"
    pip.write_text(_pip_settings())
    podman.buildah(
        "build",
        "--isolation=chroot",
        "--format=docker",
        "--layers=false",
        f"--secret=id=pip,src={pip}",
        *_mounts("/etc/ssl/certs", "/etc/hosts", "/etc/resolv.conf", os.environ.get("PIP_FIND_LINKS", "")),
        f"--build-arg=PYTHON={PYTHON}",
        f"--file={ROOT / 'docker' / 'Dockerfile'}",
        f"--tag={OURS}",
        str(ROOT),
    )


def _server(podman: Podman, name: str, image: str) -> bool:
    """Load or build the image of one of `SERVERS`, and cache it. Returns whether it was built."""
    recipe = STAND_INS / name
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(recipe.iterdir()))).hexdigest()[:16]
    kept = CACHE / f"stand-in-{name}-{digest}.tar"
    if kept.exists():
        podman("load", "--quiet", "--input", str(kept), timeout=600)
        return False
    podman.buildah(
        "build",
        "--isolation=chroot",
        "--format=docker",
        "--layers=false",
        *_mounts("/etc/apt", "/etc/ssl/certs", "/usr/share/keyrings", "/etc/hosts", "/etc/resolv.conf"),
        f"--tag={image}",
        str(recipe),
    )
    part = kept.with_suffix(".part")
    podman("save", "--quiet", "--format=docker-archive", "--output", str(part), image, timeout=600)
    part.rename(kept)
    return True


def _debian(environment: Mapping[str, str], suite: str = "") -> Path:
    """Return the archive of a root directory of Debian, by default of this machine's suite. Raises `NoBase`."""
    suite = suite or platform.freedesktop_os_release().get("VERSION_CODENAME", "unknown")
    command = [ROOT / ".ci" / "bare-machine", "--possible"]
    done = subprocess.run(command, env={**environment, "BARE_SUITE": suite}, capture_output=True, text=True)
    if done.returncode:
        raise NoBase(done.stdout.strip() or done.stderr.strip())
    return CACHE / f"bare-{suite}.tar"


def _mounts(*paths: str) -> list[str]:
    """Return options that mount files of this machine during a build without adding them to the image."""
    return [f"--volume={path}:{path}:ro" for path in paths if path and Path(path).exists()]


def _pip_settings() -> str:
    """Return the pip settings of this machine as one file, including those from variables."""
    settings: dict[str, str] = {}
    for line in run(["python3", "-m", "pip", "config", "list"], os.environ).splitlines():
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in ("global", "install", ":env:"):
            settings[option] = value.strip().strip("'")
    return "\n".join(["[global]", *(f"{option} = {value}" for option, value in settings.items())]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
