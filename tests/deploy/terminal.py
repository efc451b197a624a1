"""Shell for the commands of a page of the documentation."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Container

from tests.deploy.podman import ROOT


def code_blocks(page: str) -> list[str]:
    """Return the blocks of shell commands of a page in Markdown, in order."""
    return re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


class Terminal:
    """Shell whose output is collected."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()

    @property
    def output(self) -> str:
        """Output of the shell and its commands so far."""
        return "".join(self._lines)

    def type(self, text: str) -> None:
        """Type lines without waiting for their effect."""
        assert self._shell.stdin is not None
        # Without an empty line at the end, which a started program would read.
        self._shell.stdin.write(text.rstrip("\n") + "\n")

    def run(self, commands: str, seconds: float, *, statuses: Container[int] = (0,)) -> str:
        """Execute commands and return their output.

        seconds: timeout.
        statuses: accepted exit statuses of the last command.
        """
        before = len(self._lines)
        self.type(f"{commands}\nstatus=$?; echo; echo done with status $status")
        ended = self.wait(r"^done with status (\d+)$", seconds, before)
        output = "".join(self._lines[before:])
        assert int(ended[1]) in statuses, output
        return output

    def wait(self, pattern: str, seconds: float, before: int = 0) -> re.Match[str]:
        """Wait for a line of the output. Raises `TimeoutError` with the output.

        before: number of lines at the start of the output to ignore.
        """
        found: list[re.Match[str]] = []

        def is_there() -> bool:
            match = re.search(pattern, "".join(self._lines[before:]), re.MULTILINE)
            found[:] = [match] if match else []
            return bool(found)

        with self._changed:
            if not self._changed.wait_for(is_there, seconds):
                raise TimeoutError(f"no line like {pattern} within {seconds:g} s in: {self.output[-1500:]}")
        return found[0]

    def close(self) -> None:
        """Kill the shell and everything that was started in it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
