"""Parent's side of the bystanders' process: starts it and sends it requests. Blocking, and bound to no event
loop."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from harness import spawn
from tests.security.bystanders import Waited

ROOT = Path(__file__).parents[2]
SECONDS = 90.0


class BystanderProcess:
    """Context manager that runs the process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        ours, theirs = socket.socketpair()
        with theirs, (self._directory / "bystanders.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.security.bystanders", f"--control-fd={theirs.fileno()}"]
            self._process = spawn.start(command, cwd=ROOT, stdout=log, stderr=log, pass_fds=(theirs.fileno(),))
        ours.settimeout(SECONDS)
        self._socket = ours
        self._lines = ours.makefile("rb")
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process is not None
        self._lines.close()
        self._socket.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def open(self, where: Mapping[str, Any]) -> str:
        """Prepare the bystanders, and return the URL for callbacks."""
        return str(self._request("open", where=where))

    def begin(self, kinds: Sequence[str]) -> None:
        """Start using the installation, each kind at its rate."""
        self._request("begin", kinds=kinds)

    def end(self) -> dict[str, Waited]:
        """Stop when the requests in flight have ended, and return how long each kind has waited."""
        return msgspec.convert(self._request("end"), dict[str, Waited])

    def _request(self, what: str, **details: Any) -> Any:
        self._socket.sendall(json.dumps({"do": what, **details}).encode() + b"\n")
        line = self._lines.readline()
        assert line, f"the bystanders are gone: {(self._directory / 'bystanders.log').read_text()[-2000:]}"
        return json.loads(line)
