"""Private S3 server: the Versity gateway over a directory, which ends with the process that started it.

The gateway is built once from its Go module, which the module proxy has, into `build/versitygw`. This needs Go.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import http.client
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import polling, spawn
from harness.mariadb import free_port
from harness.packages import PackageMissing
from tidings.net.tls import TlsFiles

MODULE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
BUILD = Path(__file__).parent.parent / "build" / "versitygw"
ACCESS_KEY, SECRET_KEY = "tidings", "tidings-secret"
REGION = "us-east-1"
START_SECONDS = 30.0


def require() -> str:
    """Return the path of the gateway, which is built if missing; that takes several minutes on a slow machine.

    Raises `PackageMissing`.
    """
    program = BUILD / "bin" / f"versitygw-{VERSION}"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _build(program)
    return str(program)


def _build(program: Path) -> None:
    if shutil.which("go") is None:
        raise PackageMissing(f"the tests of S3 need Go, to build {MODULE}@{VERSION}")
    print(f"building for the tests: {MODULE}@{VERSION} ...", flush=True)
    environment = {**os.environ, "GOPATH": str(BUILD / "go"), "GOBIN": str(BUILD / "bin"), "GOFLAGS": "-modcacherw"}
    done = subprocess.run(["go", "install", f"{MODULE}@{VERSION}"], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise PackageMissing(f"building {MODULE} failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    (BUILD / "bin" / "versitygw").rename(program)
    shutil.rmtree(BUILD / "go", ignore_errors=True)


class S3Server:
    """One server: `start` and `stop` any number of times, `freeze` to make it hang, `remove` at the end.

    Stored objects survive a stop.
    """

    def __init__(self, tls: TlsFiles | None = None) -> None:
        self._tls = tls
        self._program = require()
        self._process: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-s3-"))
        (self.directory / "data").mkdir()
        (self.directory / "sidecar").mkdir()
        self.port = free_port()
        atexit.register(self.remove)

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start and wait until it answers."""
        log = self.directory / "log"
        command = [
            *(self._program, "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", f"127.0.0.1:{self.port}"),
            *("--region", REGION, "--health", "/health", "--quiet"),
            *(("--cert", self._tls.chain, "--key", self._tls.key) if self._tls else ()),
            # Metadata of objects is kept in separate files, as not every file system has extended attributes.
            *("posix", "--sidecar", str(self.directory / "sidecar"), str(self.directory / "data")),
        ]
        with log.open("ab") as output:
            self._process = spawn.start(command, stdout=output, stderr=output)
        polling.wait_until_up(self._process, self._answers, log, seconds=START_SECONDS)

    def freeze(self) -> None:
        """Suspend it until `thaw`: it accepts connections and answers nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue a suspended server."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Kill it; its files stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        """Kill it and delete its files."""
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        if self._tls:
            trusted = ssl.create_default_context(cafile=self._tls.authorities)
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=2, context=trusted)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        return False


def main() -> int:
    """Build the gateway if it is missing."""
    try:
        require()
    except PackageMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
