"""One process of the system as a child: started until it is ready, killed, paused, stopped, measured."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from harness import spawn
from harness.local_only import sitecustomize
from tidings.aio import pipes

START_SECONDS = 120.0
STOP_SECONDS = 30.0


class ProcessEnded(Exception):
    """The process ended before it was ready; `str()` contains the end of its log."""


@dataclasses.dataclass(frozen=True, slots=True)
class Revision:
    """Source tree of one revision, and how to run its commands."""

    # Its files; `None` for the current directory.
    tree: Path | None = None
    # Interpreter with its dependencies.
    python: str = sys.executable

    def command_line(self, command: str) -> list[str]:
        """Return the command line of `tidings <command>`, to be run in the tree."""
        return [self.python, "-m", "cli.main", command]


THIS = Revision()


class Process:
    """A named `tidings <command>`, whose output is appended to `<name>.log` in `directory`.

    prefix: words before the command, such as those that put it into a network namespace; they must not fork.
    arguments: words after the command.
    """

    def __init__(
        self,
        name: str,
        command: str,
        environment: Mapping[str, str],
        directory: Path,
        *,
        prefix: Sequence[str] = (),
        arguments: Sequence[str] = (),
    ) -> None:
        self._prefix = prefix
        self._arguments = arguments
        self.name = name
        self.command = command
        self.environment = dict(environment)
        self.log_path = directory / f"{name}.log"
        self.program = THIS
        self._process: subprocess.Popen[bytes] | None = None
        self._end: asyncio.Future[int] | None = None

    @property
    def pid(self) -> int | None:
        """Process id while it runs; else `None`."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def start(self, extra: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """Start and wait until it is ready; returns what it reports about itself, such as its ports.

        Raises `ProcessEnded`, and `TimeoutError` after `START_SECONDS`.

        extra: variables for this run only.
        """
        assert self.pid is None, f"{self.name} runs already"
        read, write = os.pipe()
        try:
            with self.log_path.open("ab") as log:
                self._process = spawn.start(
                    [*self._prefix, *self.program.command_line(self.command), *self._arguments, f"--ready-fd={write}"],
                    env={**inherited(), **sitecustomize.environment(), **self.environment, **(extra or {})},
                    cwd=self.program.tree,
                    stdout=log,
                    stderr=log,
                    pass_fds=(write,),
                )
        finally:
            os.close(write)
        # A dedicated thread: the event loop's pool has fewer threads than a cluster has processes.
        waiting = ThreadPoolExecutor(1)
        self._end = asyncio.get_running_loop().run_in_executor(waiting, self._process.wait)
        waiting.shutdown(wait=False)
        async with asyncio.timeout(START_SECONDS):
            text = await pipes.read_to_the_end(read)
        if not text:
            await self._end
            raise ProcessEnded(f"{self.name} ended with status {self._process.returncode}: {self.log_tail()}")
        where: Mapping[str, Any] = json.loads(text)
        return where

    async def wait(self) -> int:
        """Wait for its end; returns the exit status, negative for a signal."""
        assert self._end is not None
        return await asyncio.shield(self._end)

    async def kill9(self) -> None:
        """Kill it at once; returns when the process has ended."""
        self._signal(signal.SIGKILL)
        await self.wait()

    def pause(self) -> None:
        """Suspend it."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a suspended process."""
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """Request its end, and kill it when it has not ended within `STOP_SECONDS`."""
        if self.pid is None:
            return
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self.wait()
        except TimeoutError:
            print(f"{self.name} did not stop within {STOP_SECONDS:.0f} s: {self.log_tail()}", flush=True)
            await self.kill9()

    def log_tail(self, size: int = 2000) -> str:
        """Return the end of its log."""
        return self.log_path.read_text(errors="replace")[-size:]

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """Resources that a process has used since it started."""

    # CPU seconds.
    cpu: float
    # Largest resident set, bytes.
    peak_rss: int


def usage(pid: int) -> Usage:
    """Return the usage of a process without its children."""
    process = psutil.Process(pid)
    times = process.cpu_times()
    return Usage(times.user + times.system, _peak_rss(process))


def _peak_rss(process: psutil.Process) -> int:
    # Linux records the exact peak; on other systems the present size has to suffice.
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return int(process.memory_info().rss)


def inherited() -> dict[str, str]:
    """Return this process's environment without the settings of another installation."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TIDINGS_", "WA_", "WACORE_"))}
