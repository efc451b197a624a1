"""Runs the processes of one installation as children: in order, restarted when they die, stopped in reverse.

A child gets two pipes. On the first it says once, in one line of JSON, that it is ready and where. Of the second it
only watches the end: when the supervisor ends, however it ends, the kernel closes the pipe and the child stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cli import guard
from cli.child_log import ChildLog

START_SECONDS = 60.0
STOP_SECONDS = 20.0
LAST_WORD_SECONDS = 2.0
FIRST_BACKOFF = 1.0
MAX_BACKOFF = 30.0
# A child that ran for so many seconds is taken to be well: its next death starts the backoff again.
WELL_AFTER = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class Child:
    """A process to run: `tidings <command>` in this environment."""

    command: str
    environment: Mapping[str, str]


class Supervisor:
    """Keeps children running. `say` prints one line for the person at the console."""

    def __init__(self, log_dir: Path, say: Callable[[str], None]) -> None:
        self._log_dir = log_dir
        self._say = say
        self._running: list[_Running] = []

    async def start(self, child: Child) -> Mapping[str, Any]:
        """Start one and wait until it is ready; returns what it said. From then on it is kept running.

        Raises `guard.Failure` with the child's own last word when it does not come up.
        """
        running = _Running(child, ChildLog(self._log_dir / f"{child.command}.log", self._say), self._say)
        self._running.append(running)
        where = await running.start()
        running.keep()
        return where

    async def start_or_keep_trying(self, child: Child) -> Mapping[str, Any] | None:
        """As `start`, for one that the others can do without: `None` when it does not come up; it is tried again."""
        try:
            return await self.start(child)
        except guard.Failure as failure:
            self._say(f"{failure}; going on without {child.command}")
            self._running[-1].keep()
            return None

    def pids(self) -> dict[str, int]:
        """The process ids of those that run now."""
        return {running.child.command: running.pid for running in self._running if running.pid is not None}

    async def close(self, within: float = STOP_SECONDS) -> None:
        """Stop all, the last started first; together they have so many seconds, and each at least one, then it is
        killed."""
        deadline = time.monotonic() + within
        while self._running:
            await self._running[-1].stop(max(1.0, deadline - time.monotonic()))
            self._running.pop()

    def kill(self) -> None:
        """Kill all at once; may be called from the handler of a signal."""
        for pid in self.pids().values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class _Running:
    def __init__(self, child: Child, log: ChildLog, say: Callable[[str], None]) -> None:
        self.child = child
        self._log = log
        self._say = say
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline = -1
        self._reader: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self) -> Mapping[str, Any]:
        ready_read, ready_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "cli.main",
                self.child.command,
                f"--ready-fd={ready_write}",
                f"--lifeline-fd={lifeline_read}",
                env=dict(self.child.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(ready_write, lifeline_read),
                # Ctrl-C in the terminal is for the supervisor, which stops the children in order.
                start_new_session=True,
            )
        finally:
            os.close(ready_write)
            os.close(lifeline_read)
        self._reader = asyncio.create_task(self._collect(self._process))
        return await self._wait_until_ready(self._process, ready_read)

    def keep(self) -> None:
        self._keeper = asyncio.create_task(self._keep(), name=f"keep {self.child.command}")

    async def stop(self, seconds: float) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self._end(seconds)
        self._log.close()

    async def _end(self, seconds: float) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(seconds):
                    await process.wait()
            except TimeoutError:
                self._say(f"{self.child.command} does not stop; killing it")
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        await self._read_to_the_end()

    async def _read_to_the_end(self) -> None:
        """Read the child's last words; not for long when another process holds its end of the pipe."""
        if self._reader is not None:
            await asyncio.wait([self._reader], timeout=LAST_WORD_SECONDS)
            self._reader.cancel()

    async def _collect(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while chunk := await process.stdout.read(65536):
            self._log.write(chunk)

    async def _wait_until_ready(self, process: asyncio.subprocess.Process, ready: int) -> Mapping[str, Any]:
        loop = asyncio.get_running_loop()
        stream = asyncio.StreamReader()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(ready, "rb")
        )
        try:
            async with asyncio.timeout(START_SECONDS):
                # The end of the pipe comes with the line, or with the end of the process.
                said = await stream.read()
        except TimeoutError:
            raise guard.Failure(
                f"{self.child.command} was not ready after {START_SECONDS:.0f} s{self._see()}"
            ) from None
        finally:
            transport.close()
        if said:
            where: Mapping[str, Any] = json.loads(said)
            return where
        status = await process.wait()
        await self._read_to_the_end()
        last_word = self._log.last_word
        raise guard.Failure(last_word or f"{self.child.command} ended at its start with status {status}{self._see()}")

    async def _keep(self) -> None:
        backoff = FIRST_BACKOFF
        while True:
            assert self._process is not None
            started = time.monotonic()
            status = await self._process.wait()
            if time.monotonic() - started > WELL_AFTER:
                backoff = FIRST_BACKOFF
            self._say(
                f"{self.child.command} ended with status {status}; starting it again in {backoff:.0f} s{self._see()}"
            )
            await self._end(STOP_SECONDS)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF)
            try:
                await self.start()
                self._say(f"{self.child.command} is back")
            except (guard.Failure, OSError, ValueError) as failure:
                # Not to be forked, out of descriptors, a line that is none: as when it ends.
                self._say(f"{self.child.command}: {failure}")
                await self._end(STOP_SECONDS)

    def _see(self) -> str:
        return f" (see {self._log.path})"
