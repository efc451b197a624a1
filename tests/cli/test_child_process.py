"""Child that is not ready in time, dies, or cannot be started: it is restarted, and nothing is left behind."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli import child_process, guard
from cli.child_process import ChildProcess
from cli.commands.network import Workers
from harness import polling

# Replacement for `python -m cli.main <command>`: writes its process id to $STARTS, and acts as $PLAN states for this
# start: never ready, dead once ready, or running.
PROGRAM = f"""#!{sys.executable} -IS
import json, os, signal, sys
with open(os.environ["STARTS"], "a+") as starts:
    starts.write(f"{{os.getpid()}}\\n")
    starts.seek(0)
    start = len(starts.readlines())
for word in sys.argv:
    if word.startswith("--variables-fd="):
        with os.fdopen(int(word.partition("=")[2])) as variables:
            os.environ.update(json.load(variables))
(ready,) = [int(word.partition("=")[2]) for word in sys.argv if word.startswith("--ready-fd=")]
plan = (os.environ["PLAN"].split() + ["stays"] * start)[start - 1]
if plan != "hangs":
    with os.fdopen(ready, "w") as pipe:
        json.dump({{"start": start, **{{name: os.environ[name] for name in ("MORE",) if name in os.environ}}}}, pipe)
if plan != "dies":
    signal.pause()
"""


class Watcher:
    """Watcher that records the events of a child in order."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[tuple[str, object]] = asyncio.Queue()

    def ended(self, status: int, again: float) -> None:
        self.said.put_nowait(("ended", again))

    def not_started(self, error: Exception) -> None:
        self.said.put_nowait(("not started", str(error)))

    def is_back(self, where: Mapping[str, Any]) -> None:
        self.said.put_nowait(("back", None))

    def does_not_stop(self) -> None:
        self.said.put_nowait(("killed", None))


class LogQueue(logging.Handler):
    """Log handler that queues the records of the workers' parent."""

    def __init__(self) -> None:
        super().__init__()
        self.records: asyncio.Queue[logging.LogRecord] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.put_nowait(record)


@pytest.fixture(autouse=True)
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Path of the file with the children's process ids. Children run the program above, with shorter delays."""
    program = tmp_path / "program"
    program.write_text(PROGRAM)
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(child_process, "FIRST_BACKOFF", 0.01)
    monkeypatch.setattr(child_process, "MAX_BACKOFF", 0.04)
    return tmp_path / "starts"


@pytest.fixture
def parent_log() -> Iterator[LogQueue]:
    logger, handler = logging.getLogger("cli.commands.network"), LogQueue()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def running(starts: Path) -> list[int]:
    return [pid for pid in map(int, starts.read_text().split()) if psutil.pid_exists(pid)]


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


async def test_a_worker_that_is_not_ready_after_a_restart_is_killed_and_restarted(
    starts: Path, parent_log: LogQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers("network", [{"STARTS": str(starts), "PLAN": "dies hangs stays"}])
    stop = asyncio.Event()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        # The first start has the usual time limit. The second exceeds its limit.
        group.create_task(workers.run(stop, lambda _: monkeypatch.setattr(child_process, "START_SECONDS", 0.5)))
        said = [await parent_log.records.get() for _ in range(3)]
        assert [record.msg for record in said] == ["worker.ended", "worker.not_started", "worker.ended"]
        assert [vars(record).get("status") for record in said] == [0, None, -15]
        assert vars(said[1])["error"] == "worker 0 was not ready after 0 s"
        stop.set()
    assert running(starts) == []


async def test_the_restart_back_off_doubles_up_to_its_limit(starts: Path) -> None:
    watcher = Watcher()
    child = ChildProcess("network", {"STARTS": str(starts), "PLAN": "dies dies dies dies stays"}, watcher)
    assert await child.start() == {"start": 1}
    keeper = asyncio.create_task(child.keep())
    async with asyncio.timeout(30):
        said = [await watcher.said.get() for _ in range(8)]
    assert [pause for what, pause in said if what == "ended"] == [0.01, 0.02, 0.04, 0.04]
    assert [what for what, _ in said] == ["ended", "back"] * 4
    keeper.cancel()
    await asyncio.gather(keeper, return_exceptions=True)
    assert running(starts) == [child.pid]
    await child.end(30.0)
    assert child.pid is None
    assert running(starts) == []


async def test_a_failed_start_leaves_no_process_and_no_descriptor(
    starts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = ChildProcess("network", {"STARTS": str(starts), "PLAN": "hangs"}, Watcher())
    monkeypatch.setattr(child_process, "START_SECONDS", 0.5)
    before = open_descriptors()
    with pytest.raises(guard.CommandFailure, match="network was not ready"):
        await child.start()
    assert running(starts) == []
    monkeypatch.setattr(sys, "executable", str(starts.with_name("missing")))
    with pytest.raises(FileNotFoundError):
        await child.start()
    # A transport closes its descriptor in the next event-loop iteration.
    await asyncio.sleep(0)
    assert open_descriptors() <= before


async def test_a_prepared_child_begins_with_further_variables_and_keeps_them(starts: Path) -> None:
    watcher = Watcher()
    child = ChildProcess("network", {"STARTS": str(starts), "PLAN": "dies stays"}, watcher)
    before = open_descriptors()
    await child.prepare()
    await polling.until(lambda: starts.exists() and bool(starts.read_text()), seconds=30)
    assert await child.start({"MORE": "value"}, {"STARTED": "once"}) == {"start": 1, "MORE": "value"}
    keeper = asyncio.create_task(child.keep())
    async with asyncio.timeout(30):
        assert [(await watcher.said.get())[0] for _ in range(2)] == ["ended", "back"]
    assert child.environment["MORE"] == "value"
    assert "STARTED" not in child.environment
    keeper.cancel()
    await child.end(10.0)
    await asyncio.sleep(0)
    assert running(starts) == []
    assert open_descriptors() <= before


async def test_a_prepared_child_that_has_ended_is_a_failed_start(starts: Path) -> None:
    child = ChildProcess("network", {"STARTS": str(starts), "PLAN": "stays"}, Watcher())
    await child.prepare()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    await polling.until(lambda: child.pid is None, seconds=30)
    with pytest.raises(guard.CommandFailure, match="network failed to start, with status -9"):
        await child.start({"MORE": "value"})


async def test_a_prepared_child_that_is_not_needed_leaves_nothing(starts: Path) -> None:
    child = ChildProcess("network", {"STARTS": str(starts), "PLAN": "stays"}, Watcher())
    before = open_descriptors()
    await child.prepare()
    await child.end(10.0)
    await asyncio.sleep(0)
    assert child.pid is None
    assert open_descriptors() <= before
