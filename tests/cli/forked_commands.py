"""`tidings` commands in processes forked from one that has imported the modules of all commands."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from cli import main
from harness import spawn

TIMEOUT = 60.0  # seconds


class ForkedCommands:
    """Process that forks one command at a time. It ends when it is closed, or when this process ends."""

    def __init__(self) -> None:
        requests, self._requests = os.pipe()
        self._reports, reports = os.pipe()
        command = [sys.executable, "-m", __name__, str(requests), str(reports)]
        self._server = spawn.start(command, pass_fds=(requests, reports), stderr=None)
        os.close(requests)
        os.close(reports)

    def run(self, words: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end.

        words:       the command and its arguments
        environment: all environment variables of the process

        Raises `subprocess.TimeoutExpired` after a minute.
        """
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            request = {"words": list(words), "environment": dict(environment), "files": [str(out), str(err)]}
            os.write(self._requests, json.dumps(request).encode() + b"\n")
            pid = self._report()
            if not select.select([self._reports], [], [], TIMEOUT)[0]:
                os.kill(pid, signal.SIGKILL)
                self._report()
                raise subprocess.TimeoutExpired(list(words), TIMEOUT)
            return subprocess.CompletedProcess(list(words), self._report(), out.read_text(), err.read_text())

    def _report(self) -> int:
        """Return the next number that the server reports: a process id, then the exit status."""
        return int.from_bytes(os.read(self._reports, 8), "big", signed=True)

    def close(self) -> None:
        """End the server."""
        os.close(self._requests)
        os.close(self._reports)
        self._server.wait()


def _serve(requests: int, reports: int) -> None:
    for name in main.COMMANDS:
        importlib.import_module(f"cli.commands.{name.replace('-', '_')}")
    with os.fdopen(requests) as lines:
        for line in lines:
            pid = os.fork()
            if not pid:
                os.close(reports)
                _be_command(json.loads(line))
            os.write(reports, pid.to_bytes(8, "big", signed=True))
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.write(reports, status.to_bytes(8, "big", signed=True))


def _be_command(request: Mapping[str, Any]) -> NoReturn:
    status = 1
    try:
        os.environ.clear()
        os.environ.update(request["environment"])
        for descriptor, path in enumerate(request["files"], 1):
            file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(file, descriptor)
            os.close(file)
        status = main.main(request["words"])
    except SystemExit as error:
        # An `argparse` error.
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve(*map(int, sys.argv[1:]))
