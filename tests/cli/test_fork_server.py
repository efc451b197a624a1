"""Fork server: environment, descriptors and signals of its children, their exit statuses, and its own end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import psutil

from harness import polling

PARENT = [sys.executable, "-m", "tests.cli.fork_parent"]


def is_running(pid: int) -> bool:
    """Return whether a process runs; one that has ended may wait for its new parent to take its status."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_children_have_their_own_environment_and_report_their_ends() -> None:
    ended = subprocess.run(PARENT, capture_output=True, text=True, timeout=60, check=True)
    said = json.loads(ended.stdout)
    seen = said["seen"]
    assert seen["environment"] == {"DO": "stay", "ONLY": "this"}
    # Standard input, output and error, and the one pipe.
    assert len(seen["descriptors"]) == 4
    assert str(said["unused"]) not in seen["descriptors"][:3]
    assert seen["loaded"] == said["loaded"]
    assert seen["leads its session"]
    assert not seen["ignores SIGTERM"]
    assert said["statuses"] == [3, 1, -15, -9, -9]
    assert "RuntimeError: the child has failed" in ended.stderr
    assert said["refused"] == "the fork server has ended"


def test_the_server_starts_without_standard_input() -> None:
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *PARENT]
    ended = subprocess.run(closed, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert json.loads(ended.stdout)["statuses"] == [3, 1, -15, -9, -9]


def test_a_child_that_is_terminated_while_it_starts_ends() -> None:
    assert subprocess.run([*PARENT, "early"], timeout=60, check=False).returncode == signal.SIGTERM


def start_parent_and_kill_it() -> dict[str, int]:
    with subprocess.Popen([*PARENT, "stay"], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids: dict[str, int] = json.loads(parent.stdout.readline())
        parent.kill()
    return pids


async def test_the_server_ends_when_its_parent_is_killed() -> None:
    pids = await asyncio.to_thread(start_parent_and_kill_it)
    try:
        await polling.until(lambda: not is_running(pids["server"]), seconds=30)
        # A worker ends by itself, through its lifeline.
        assert is_running(pids["child"])
    finally:
        os.kill(pids["child"], signal.SIGKILL)
