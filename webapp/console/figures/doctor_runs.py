"""Findings of `tidings doctor`, run as a separate program with the environment of this Webapp."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import sys
from collections.abc import Sequence

import msgspec

from tidings.aio import service
from tidings.aio.clock import Clock

log = logging.getLogger(__name__)

# Seconds that a run may take, and that its result is current.
TIMEOUT, CURRENT = 90.0, 600.0
# Largest output that is read, bytes.
_MAX_OUTPUT = 1 << 20
_PROGRAM = (sys.executable, "-m", "cli.main")


class DoctorFinding(msgspec.Struct, frozen=True):
    """Result of one check."""

    check: str
    level: str  # `fine`, `warning` or `error`
    text: str
    remedy: str | None = None


class _Output(msgspec.Struct, frozen=True):
    findings: list[DoctorFinding]


@dataclasses.dataclass(frozen=True, slots=True)
class DoctorReport:
    """Findings of the last run."""

    findings: Sequence[DoctorFinding] = ()
    at: int = 0  # Unix milliseconds of its end; 0 before the first run
    problem: str = ""  # reason why it could not run; empty if it did
    is_running: bool = False

    @property
    def serious(self) -> Sequence[DoctorFinding]:
        """Return the findings that need attention, errors first."""
        found = [finding for finding in self.findings if finding.level != "fine"]
        return sorted(found, key=lambda finding: finding.level != "error")


class DoctorRuns:
    """Runs `tidings doctor`, at most once at a time. Service that ends a run at its stop."""

    name = "console-doctor"

    def __init__(self, clock: Clock, *, everything: bool, program: Sequence[str] = _PROGRAM) -> None:
        """Create the runs.

        everything: whether all processes of the installation run with the environment and files of this one
        program: command line without its arguments
        """
        self._clock = clock
        self._command = (*program, "doctor", *(() if everything else ("webapp",)), "--quick", "--json")
        self._report = DoctorReport()
        self._task: asyncio.Task[None] | None = None
        self._posts_next = False  # a run with `post` was requested during a run

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        await self.close()

    async def close(self) -> None:
        """End a run in progress."""
        if self._task is not None:
            await service.cancel([self._task])

    @property
    def report(self) -> DoctorReport:
        return dataclasses.replace(self._report, is_running=self._task is not None)

    @property
    def is_current(self) -> bool:
        """Return whether the last result is recent."""
        return self._clock.now() * 1000 - self._report.at < CURRENT * 1000

    def start(self, *, post: bool = False) -> None:
        """Start a run, unless one is in progress. A run with `post` follows the one in progress.

        post: post a test to the webhook instead of requesting its options
        """
        if self._task is not None:
            self._posts_next |= post
        else:
            self._task = asyncio.create_task(self._run(["--post"] if post else []), name="console doctor")
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if task.cancelled():
            return
        if task.exception() is not None:
            log.warning("console.doctor_failed", extra={"error": repr(task.exception())[:200]})
        if self._posts_next:
            self._posts_next = False
            self.start(post=True)

    async def _run(self, options: Sequence[str]) -> None:
        findings: Sequence[DoctorFinding] = ()
        problem = ""
        try:
            findings = msgspec.json.decode(await self._output(options), type=_Output).findings
        except (OSError, TimeoutError, msgspec.MsgspecError) as error:
            problem = f"{type(error).__name__}: {error}"[:200]
        self._report = DoctorReport(findings, self._clock.now_ms(), problem)

    async def _output(self, options: Sequence[str]) -> bytes:
        program = await asyncio.create_subprocess_exec(
            *self._command,
            *options,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_MAX_OUTPUT,
        )
        assert program.stdout is not None
        try:
            async with asyncio.timeout(TIMEOUT):
                output = await program.stdout.read(_MAX_OUTPUT)
                while more := await program.stdout.read(_MAX_OUTPUT):
                    if len(output) + len(more) > _MAX_OUTPUT:
                        break
                    output += more
                await program.wait()
        finally:
            if program.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    program.kill()
                await program.wait()
        return output
