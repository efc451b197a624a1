"""`make test-deploy`: build the images, then run each compose file where it can reach and affect nothing else.

The tests run in separate namespaces: everything they start ends with them, and their bridges, addresses and firewall
rules are isolated. The images are built before, since that downloads packages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import packages
from tests.deploy import images
from tests.deploy.podman import CommandFailed, Podman

PROGRAMS = {
    "podman": "podman",
    "buildah": "buildah",
    "runc": "runc",
    "iptables": "iptables",
    "ip": "iproute2",
    "debootstrap": "debootstrap",
    "aardvark-dns": "aardvark-dns",
    "netavark": "netavark",
}
# Sets up the addresses of this machine as containers see it. PID 1 must also wait for orphans.
INSIDE = """
mount -t tmpfs none /dev/shm && mount -t tmpfs none /run
ip link set lo up && ip address add 10.77.0.1/32 dev lo
"$@"
status=$?
exit $status
"""


def main() -> int:
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun:5.0f} s  {line}", flush=True)

    directory = Path(tempfile.mkdtemp(prefix="tidings-deploy-", dir="/var/tmp"))
    try:
        packages.require(PROGRAMS, PROGRAMS)
        images.prepare(Podman(directory), say)
        status = _inside(directory, sys.argv[1:])
    except (packages.PackageMissing, images.NoBase, CommandFailed) as error:
        print(f"make test-deploy: {error}", file=sys.stderr)
        status = 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    say("nothing is left" if not directory.exists() else f"left: {directory}")
    return status


def _inside(directory: Path, words: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-s", "-o", "faulthandler_timeout=900", f"--podman={directory}"]
    namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    inside = ["unshare", *namespaces, "bash", "-c", INSIDE, "bash", *command, "tests/deploy", *words]
    return subprocess.run(inside).returncode


if __name__ == "__main__":
    sys.exit(main())
