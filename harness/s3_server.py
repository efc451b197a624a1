"""Private S3 servers, which end with the process that started them: the Versity gateway over a directory, and MinIO.

MinIO encrypts at rest and has lifecycle rules, the gateway has neither. Both are built once from their Go modules.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import http.client
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from harness import polling, spawn
from harness.go_programs import GoProgram
from harness.mariadb import free_port
from harness.packages import PackageMissing
from tidings.net.tls import TlsFiles

ACCESS_KEY, SECRET_KEY = "tidings", "tidings-secret"
REGION = "us-east-1"
START_SECONDS = 30.0
# Name of the key that MinIO encrypts with.
KMS_KEY = "tidings-key"


class S3Server:
    """One server: `start` and `stop` any number of times, `pause` to make it hang, `remove` at the end.

    Stored objects survive a stop.
    """

    PROGRAM: ClassVar = GoProgram("github.com/versity/versitygw/cmd/versitygw", "v1.8.0")
    HEALTH: ClassVar = "/health"

    def __init__(self, tls: TlsFiles | None = None, host: str = "127.0.0.1") -> None:
        """tls: certificate and key of the server, and the authority that verifies it; `None` for plain HTTP.
        host: address of this machine that it listens on.
        """
        self._tls = tls
        self._host = host
        self._program = self.PROGRAM.built()
        self._process: subprocess.Popen[bytes] | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="tidings-s3-"))
        (self.directory / "data").mkdir()
        (self.directory / "sidecar").mkdir()
        self.port = free_port()
        atexit.register(self.remove)

    @property
    def url(self) -> str:
        """URL of the server."""
        return f"{'https' if self._tls else 'http'}://{self._host}:{self.port}"

    def start(self) -> None:
        """Start and wait until it responds."""
        log = self.directory / "log"
        with log.open("ab") as output:
            self._process = spawn.start(
                self._command(), env={**os.environ, **self._environment()}, stdout=output, stderr=output
            )
        polling.wait_until_up(self._process, self._responds, log, seconds=START_SECONDS)

    def _command(self) -> Sequence[str]:
        return [
            *(self._program, "--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", f"{self._host}:{self.port}"),
            *("--region", REGION, "--health", self.HEALTH, "--quiet"),
            *(("--cert", self._tls.chain, "--key", self._tls.key) if self._tls else ()),
            # Metadata of objects is kept in separate files, as not every file system has extended attributes.
            *("posix", "--sidecar", str(self.directory / "sidecar"), str(self.directory / "data")),
        ]

    def _environment(self) -> Mapping[str, str]:
        return {}

    def pause(self) -> None:
        """Suspend it until `resume`: it accepts connections and does not respond."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
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

    def _responds(self) -> bool:
        connection = http.client.HTTPConnection(self._host, self.port, timeout=2)
        if self._tls:
            trusted = ssl.create_default_context(cafile=self._tls.authorities)
            connection = http.client.HTTPSConnection(self._host, self.port, timeout=2, context=trusted)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", self.HEALTH)
            return connection.getresponse().status == 200
        return False


class MinIO(S3Server):
    """MinIO over plain HTTP, with one key for encryption at rest."""

    PROGRAM: ClassVar = GoProgram("github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c")
    HEALTH: ClassVar = "/minio/health/ready"

    def _command(self) -> Sequence[str]:
        addresses = ("--address", f"{self._host}:{self.port}", "--console-address", f"127.0.0.1:{free_port()}")
        return [self._program, "server", "--quiet", *addresses, str(self.directory / "data")]

    def _environment(self) -> Mapping[str, str]:
        key = base64.b64encode(bytes(range(32))).decode()
        return {
            "MINIO_ROOT_USER": ACCESS_KEY,
            "MINIO_ROOT_PASSWORD": SECRET_KEY,
            "MINIO_REGION": REGION,
            "MINIO_KMS_SECRET_KEY": f"{KMS_KEY}:{key}",
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        }


def main() -> int:
    """Build the servers if they are missing."""
    try:
        for server in (S3Server, MinIO):
            server.PROGRAM.built()
    except PackageMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
