"""Program that carries out requests from its standard input, and the CPU and memory of a set of processes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import psutil

from benchmarks.rig.sampler import Sampler, Samples
from harness.processes import ProcessEnded

ROOT = Path(__file__).parents[2]
START_SECONDS, REQUEST_SECONDS, STOP_SECONDS = 60.0, 240.0, 10.0
LIMIT = 1024 * 1024  # bytes of a response, which is one line


class Program:
    """Program run by an asynchronous context manager; it ends with its standard input."""

    def __init__(
        self, name: str, command: Sequence[str | Path], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """environment: variables in addition to those of this process"""
        self.name = name
        self._environment = {**os.environ, **(environment or {})}
        self._command = [str(word) for word in command]
        self._log_path = directory / f"{name}.log"

    @property
    def pid(self) -> int:
        return self._process.pid

    async def __aenter__(self) -> Self:
        with self._log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=ROOT,
                env=self._environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=LIMIT,
            )
        try:
            await self._read(START_SECONDS)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def request(self, **what: Any) -> dict[str, Any]:
        """Send a request and return the response. Raises `ProcessEnded` and `TimeoutError`."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what).encode() + b"\n")
        return await self._read(REQUEST_SECONDS)

    async def _read(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self._process.stdout.readline()
        if not line:
            await self._process.wait()
            raise ProcessEnded(f"{self.name}: {self._log_path.read_text(errors='replace')[-2000:]}")
        response: dict[str, Any] = json.loads(line)
        return response

    async def __aexit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()


class TreeSampler:
    """Sampler as an asynchronous context manager: `samples` has the CPU of processes including all their children."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._sampler = Sampler(lambda: pids)

    @property
    def samples(self) -> Samples:
        """Return the samples. Memory is given only for processes without children, which would share some of it."""
        found = self._sampler.samples
        alone = {
            name: size for name, size in found.peak_rss.items() if name in self._pids and name not in self._parents
        }
        return dataclasses.replace(found, cpu=self._used, peak_rss=alone)

    async def __aenter__(self) -> Self:
        await self._sampler.__aenter__()
        self._before = {name: _cpu_of_tree(pid) for name, pid in self._pids.items()}
        return self

    async def __aexit__(self, kind: object, *error: object) -> None:
        # After an error the processes may have ended.
        if kind is None:
            self._used = {name: _cpu_of_tree(pid) - self._before[name] for name, pid in self._pids.items()}
            self._parents = {name for name, pid in self._pids.items() if psutil.Process(pid).children()}
        await self._sampler.__aexit__(kind, *error)


def _cpu_of_tree(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, including ended ones that were waited for."""
    total = 0.0
    process = psutil.Process(pid)
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
