"""`make test-deploy`: build the images, then run each compose file where it can reach and affect nothing else.

The images are made first, because they need packages from outside. Both steps run in separate mount and process
namespaces, the tests also in a separate network namespace. Processes, mounts, bridges and firewall rules end with the
namespaces, also when the command is interrupted. The directory of a killed run is removed by the next run.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn

from harness import packages

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
ip link set lo up && ip address add 172.17.0.1/32 dev lo
"$@"
status=$?
exit $status
"""
PLACE, PREFIX = Path("/var/tmp"), "tidings-deploy-"
LOCK = "lock"
# Timeouts of the two steps, seconds.
IMAGES_SECONDS, TESTS_SECONDS = 3600.0, 7200.0
# Seconds that killed processes have to end.
GONE_SECONDS = 60.0


class Interrupted(Exception):
    """The command was interrupted; `str()` names the signal."""


@dataclasses.dataclass(frozen=True)
class Step:
    """Command that is run in separate namespaces."""

    command: Sequence[str]
    seconds: float  # timeout
    namespaces: Sequence[str] = ()  # flags of `unshare` for further namespaces


def steps(directory: Path) -> Iterator[Step]:
    """Yield the steps: make the images, then run the tests. All data of podman is in `directory`."""
    packages.require(PROGRAMS, PROGRAMS)
    yield Step([sys.executable, "-m", "tests.deploy.images", str(directory)], IMAGES_SECONDS)
    options = ["-s", "-p", "tests.deploy.reports", "-o", "faulthandler_timeout=900", f"--podman={directory}"]
    tests = [sys.executable, "-m", "pytest", *options, "tests/deploy", *sys.argv[1:]]
    yield Step(["bash", "-c", INSIDE, "bash", *tests], TESTS_SECONDS, ["--net"])


def main(place: Path = PLACE, steps: Callable[[Path], Iterable[Step]] = steps) -> int:
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun:5.0f} s  {line}", flush=True)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    remove_abandoned(place)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    # Locked until the end, so that another run does not remove the directory as abandoned.
    lock = _lock(directory)
    try:
        for step in steps(directory):
            run_apart(step)
        status = 0
    except StepFailed as error:
        status = error.status
        if str(error):
            print(f"make test-deploy: {error}", file=sys.stderr)
    except (packages.PackageMissing, Interrupted) as error:
        print(f"make test-deploy: {error}", file=sys.stderr)
        status = 1
    finally:
        # Nothing interrupts the removal.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(directory, ignore_errors=True)
        lock.close()
    say("nothing is left" if not directory.exists() else f"left: {directory}")
    return status


class StepFailed(Exception):
    """A step failed with `status` or timed out. `str()` is empty if the step has printed the reason."""

    def __init__(self, status: int, reason: str = "") -> None:
        super().__init__(reason)
        self.status = status


def run_apart(step: Step) -> None:
    """Run a command in separate mount and process namespaces, which end with it. Raises `StepFailed`.

    Its processes, and with them its mounts, also end when this process ends for any reason.
    """
    flags = [*step.namespaces, "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    with subprocess.Popen(["setpriv", "--pdeathsig=KILL", "unshare", *flags, *step.command]) as process:
        try:
            status = process.wait(step.seconds)
        except subprocess.TimeoutExpired:
            reason = f"gave up after {step.seconds:g} s: {' '.join(step.command)[:200]}"
            raise StepFailed(1, reason) from None
        finally:
            _end(process)
    if status:
        raise StepFailed(status)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill `unshare`, and with it the first process of the namespaces. Returns when all their processes are gone."""
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        firsts = [os.pidfd_open(int(child)) for child in children]
    except OSError:
        firsts = []
    process.kill()
    for first in firsts:
        # Readable once the process has ended, which the kernel delays until its namespace is empty.
        select.select([first], [], [], GONE_SECONDS)
        os.close(first)


def remove_abandoned(place: Path) -> None:
    """Remove the directories of killed runs, which are those without a held lock."""
    for directory in place.glob(f"{PREFIX}*"):
        try:
            with _lock(directory):
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue


def _lock(directory: Path) -> IO[str]:
    """Lock the directory until the returned file is closed. Raises `BlockingIOError` and `OSError`."""
    file = (directory / LOCK).open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise
    return file


def _interrupt(number: int, _: object) -> NoReturn:
    raise Interrupted(f"interrupted by {signal.Signals(number).name}")


if __name__ == "__main__":
    sys.exit(main())
