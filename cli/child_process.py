"""Child process that runs a `tidings` command: waits until it is ready, restarts it after a crash, stops it in time.

A child inherits two pipes. On the first it reports once, in one line of JSON, that it is ready and its addresses. On
the second it waits for end of file: when the parent ends for any reason, the kernel closes the pipe, and the child
stops. A child that is prepared has a third one, from which it reads the environment variables that were not known yet:
loading a program takes as long as all the rest of a start.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from cli import guard
from cli.child_log import ChildLog
from tidings.aio import pipes

START_SECONDS = 60.0
STOP_SECONDS = 20.0
OUTPUT_SECONDS = 2.0
FIRST_BACKOFF = 1.0
MAX_BACKOFF = 30.0
NOTHING: Mapping[str, str] = {}
# Seconds after which a running child counts as healthy: its next crash restarts at the first back-off.
HEALTHY_SECONDS = 60.0


class Watcher(Protocol):
    """Receiver of the events of a child process."""

    def ended(self, status: int, again: float) -> None:
        """The child has ended with this exit status and will be restarted in `again` seconds."""

    def not_started(self, error: Exception) -> None:
        """A restarted child did not become ready."""

    def is_back(self, where: Mapping[str, Any]) -> None:
        """A restarted child is ready. where: its ready message"""

    def does_not_stop(self) -> None:
        """The child has not stopped within its time and is killed."""


class StartedProcess(Protocol):
    """Process that has been started, as `asyncio.subprocess.Process`."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


# Starts a process with these environment variables and these pipes, of which each is a descriptor by its name.
Spawn = Callable[[Mapping[str, str], Mapping[str, int]], Awaitable[StartedProcess]]


@dataclasses.dataclass(eq=False, repr=False)
class ChildProcess:
    """Child process that runs `tidings <command>` with the given environment variables.

    name: name of the child in the text of a failure; the command if empty.
    log: receives the child's output; None to inherit the output of this process.
    spawn: starts the process; None to execute the command. Only an executed one has a log.
    """

    command: str
    environment: Mapping[str, str]
    watcher: Watcher
    _: dataclasses.KW_ONLY
    name: str = ""
    log: ChildLog | None = None
    arguments: Sequence[str] = ()  # of the command, before those of the pipes
    spawn: Spawn | None = None

    def __post_init__(self) -> None:
        self._name = self.name or self.command
        self._process: StartedProcess | None = None
        self._lifeline = -1
        # Of a child that is prepared: the pipe for further variables, and the one for its ready message; -1 otherwise.
        self._variables = self._prepared = -1
        self._reader: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running child; None when none is running."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def prepare(self) -> None:
        """Start the child, which loads its program and then waits for `start`. Raises `OSError`."""
        self._prepared = await self._spawn(waits=True)

    async def start(self, more: Mapping[str, str] = NOTHING, once: Mapping[str, str] = NOTHING) -> Mapping[str, Any]:
        """Start the child, or continue a prepared one, and wait until it is ready. Returns its ready message.

        more: further environment variables, which it keeps when it is restarted
        once: variables of this start only

        A child that does not become ready is stopped. Raises `guard.Failure` with the last error line of its log,
        `OSError` when the process cannot be created, and `ValueError` for a malformed ready message.
        """
        self.environment = {**self.environment, **more}
        try:
            return await self._start(more, once)
        except Exception:
            await self.end(STOP_SECONDS)
            raise

    async def keep(self) -> None:
        """Restart the child whenever it ends, until cancelled. The caller must have called `start` first."""
        backoff = FIRST_BACKOFF
        while True:
            assert self._process is not None
            started = time.monotonic()
            status = await self._process.wait()
            if time.monotonic() - started > HEALTHY_SECONDS:
                backoff = FIRST_BACKOFF
            self.watcher.ended(status, backoff)
            await self.end(STOP_SECONDS)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF)
            try:
                self.watcher.is_back(await self.start())
            except (guard.CommandFailure, OSError, ValueError) as error:
                self.watcher.not_started(error)

    async def end(self, seconds: float) -> None:
        """Send SIGTERM, and SIGKILL after `seconds` seconds. Does nothing if the child has ended."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(seconds):
                    await process.wait()
            except TimeoutError:
                self.watcher.does_not_stop()
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        for descriptor in (self._lifeline, self._variables, self._prepared):
            if descriptor >= 0:
                os.close(descriptor)
        self._lifeline = self._variables = self._prepared = -1
        await self._read_to_the_end()

    async def _start(self, more: Mapping[str, str], once: Mapping[str, str]) -> Mapping[str, Any]:
        ready = self._continue({**more, **once}) if self._prepared >= 0 else await self._spawn(once)
        assert self._process is not None
        try:
            async with asyncio.timeout(START_SECONDS):
                output = await pipes.read_to_the_end(ready)
        except TimeoutError:
            raise guard.CommandFailure(f"{self._name} was not ready after {START_SECONDS:.0f} s{self._see()}") from None
        if output:
            where: Mapping[str, Any] = json.loads(output)
            return where
        status = await self._process.wait()
        await self._read_to_the_end()
        exit_error = self.log.exit_error if self.log is not None else ""
        raise guard.CommandFailure(exit_error or f"{self._name} failed to start, with status {status}{self._see()}")

    def _continue(self, more: Mapping[str, str]) -> int:
        """Send a prepared process its variables. Returns the descriptor of the pipe for its ready message."""
        ready, self._prepared = self._prepared, -1
        variables, self._variables = self._variables, -1
        try:
            # The process may have ended; then it will not become ready either.
            with contextlib.suppress(BrokenPipeError):
                os.write(variables, json.dumps(dict(more)).encode())
        finally:
            os.close(variables)
        return ready

    async def _spawn(self, once: Mapping[str, str] = NOTHING, *, waits: bool = False) -> int:
        """Start the process. Returns the descriptor of the pipe for its ready message.

        once: variables that it does not keep when it is restarted
        waits: whether the process waits for further variables
        """
        with contextlib.ExitStack() as unused, contextlib.ExitStack() as theirs:
            ready, ready_write = os.pipe()
            unused.callback(os.close, ready)
            theirs.callback(os.close, ready_write)
            lifeline_read, self._lifeline = os.pipe()
            theirs.callback(os.close, lifeline_read)
            inherited = {"ready": ready_write, "lifeline": lifeline_read}
            if waits:
                inherited["variables"], self._variables = os.pipe()
                theirs.callback(os.close, inherited["variables"])
            self._process = await (self.spawn or self._execute)({**self.environment, **once}, inherited)
            unused.pop_all()
        return ready

    async def _execute(self, environment: Mapping[str, str], inherited: Mapping[str, int]) -> StartedProcess:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "cli.main", self.command, *self.arguments),
            *(f"--{name}-fd={descriptor}" for name, descriptor in inherited.items()),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE if self.log is not None else None,
            stderr=asyncio.subprocess.STDOUT if self.log is not None else None,
            pass_fds=tuple(inherited.values()),
            # Ctrl-C in the terminal must reach only this process, which stops the children in order.
            start_new_session=True,
        )
        if self.log is not None:
            self._reader = asyncio.create_task(_collect(process, self.log))
        return process

    async def _read_to_the_end(self) -> None:
        """Read the rest of the child's output, for at most `OUTPUT_SECONDS`: another process may hold the pipe."""
        if self._reader is not None:
            await asyncio.wait([self._reader], timeout=OUTPUT_SECONDS)
            self._reader.cancel()

    def _see(self) -> str:
        return f" (see {self.log.path})" if self.log is not None else ""


async def _collect(process: asyncio.subprocess.Process, log: ChildLog) -> None:
    assert process.stdout is not None
    while chunk := await process.stdout.read(65536):
        log.write(chunk)
