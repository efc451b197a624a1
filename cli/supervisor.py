"""Supervisor of an installation's processes: starts them in order, restarts them, and stops them in reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cli import guard
from cli.child_log import ChildLog
from cli.child_process import NOTHING, STOP_SECONDS, ChildProcess


@dataclasses.dataclass(frozen=True, slots=True)
class Child:
    """Process to run: `tidings <command> <arguments>` with these environment variables."""

    command: str
    environment: Mapping[str, str]
    arguments: Sequence[str] = ()
    entry: str = ""  # part of its ready message that opens its pages: printed when it is back; empty for none


class Supervisor:
    """Keeps children running.

    print_line: prints one line on the console.
    """

    def __init__(self, log_dir: Path, print_line: Callable[[str], None]) -> None:
        self._log_dir = log_dir
        self._print_line = print_line
        self._running: list[_Running] = []

    async def prepare(self, child: Child) -> None:
        """Start a child, which loads its program and then waits for `start`. Raises `OSError`."""
        running = _Running(child, self._log_dir, self._print_line)
        self._running.append(running)
        await running.prepare()

    async def start(
        self, command: str, variables: Mapping[str, str], once: Mapping[str, str] = NOTHING
    ) -> Mapping[str, Any]:
        """Continue a prepared child, wait until it is ready, and keep it running from then on. Returns its ready
        message.

        Raises `guard.Failure` with the child's last error line when it does not become ready.

        variables: further environment variables
        once: variables that a restarted child does not have
        """
        running = self._find(command)
        where = await running.start(variables, once)
        running.keep()
        return where

    async def start_or_keep_trying(self, command: str, variables: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Continue a child that the others do not need. Returns None if it does not become ready; it is retried
        then.
        """
        try:
            return await self.start(command, variables)
        except guard.CommandFailure as failure:
            self._print_line(f"{failure}; continuing without {command}")
            self._find(command).keep()
            return None

    def _find(self, command: str) -> _Running:
        return next(running for running in self._running if running.command == command)

    def pids(self) -> dict[str, int]:
        """Return the process ids of the running children, by command."""
        return {running.command: running.pid for running in self._running if running.pid is not None}

    async def close(self, within: float = STOP_SECONDS) -> None:
        """Stop all children, the last prepared first.

        They share `within` seconds, but each has at least 1 second before it is killed.
        """
        deadline = time.monotonic() + within
        while self._running:
            await self._running[-1].stop(max(1.0, deadline - time.monotonic()))
            self._running.pop()

    def kill(self) -> None:
        """Kill all children at once. Safe to call from a signal handler."""
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class _Running:
    """Child with its log; its events are printed on the console."""

    def __init__(self, child: Child, log_dir: Path, print_line: Callable[[str], None]) -> None:
        self.command = child.command
        self._entry = child.entry
        self._log = ChildLog(log_dir / f"{child.command}.log", print_line)
        self._print_line = print_line
        self._process = ChildProcess(child.command, child.environment, self, log=self._log, arguments=child.arguments)
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid

    async def prepare(self) -> None:
        await self._process.prepare()

    async def start(self, variables: Mapping[str, str], once: Mapping[str, str]) -> Mapping[str, Any]:
        return await self._process.start(variables, once)

    def keep(self) -> None:
        self._keeper = asyncio.create_task(self._process.keep(), name=f"keep {self.command}")

    async def stop(self, seconds: float) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._process.end(seconds)
        self._log.close()

    def ended(self, status: int, again: float) -> None:
        where = f"(see {self._log.path})"
        self._print_line(f"{self.command} ended with status {status}; starting it again in {again:.0f} s {where}")

    def not_started(self, error: Exception) -> None:
        self._print_line(f"{self.command}: {error}")

    def is_back(self, where: Mapping[str, Any]) -> None:
        self._print_line(f"{self.command} is back{f': {where[self._entry]}' if self._entry else ''}")

    def does_not_stop(self) -> None:
        self._print_line(f"{self.command} does not stop; it is killed")
