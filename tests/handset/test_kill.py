"""Robots as a separate process, killed with SIGKILL while messages arrive."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from handset.robots.behaviours import Behaviour, number_of
from handset.settings import RobotsSettings
from harness import spawn
from tests.handset.business import Recorder, business
from tests.handset.conftest import HANDSET_KEY, SECRETS, LiveNetwork
from tidings.aio import crashpoints

MESSAGES = 60
PROGRAM = """
import asyncio, os
from handset.services import run_robots
from handset.settings import RobotsSettings
from tidings.aio import crashpoints

async def main():
    await run_robots(RobotsSettings.read(os.environ), asyncio.Event(), asyncio.Event())

crashpoints.arm(os.environ.get("TIDINGS_CRASH_AT"))
asyncio.run(main())
"""


def start(settings: RobotsSettings, *, crash_at: str = "") -> subprocess.Popen[bytes]:
    environment = {
        "PATH": os.environ["PATH"],
        "TIDINGS_DATA_DIR": str(settings.data_dir),
        "TIDINGS_EMBEDDED": "1",
        "TIDINGS_REGISTRATION_KEY": SECRETS.registration_key,
        "TIDINGS_HANDSET_KEY": HANDSET_KEY.hex(),
        "TIDINGS_NETWORK_HTTP_URL": settings.http_url,
        "TIDINGS_NETWORK_TCP_ADDRESS": "{}:{}".format(*settings.tcp_address),
        "TIDINGS_ROBOTS_PER_KIND": "2",
        "TIDINGS_ROBOTS_KINDS": "11,14",
        "TIDINGS_CRASH_AT": crash_at,
    }
    return spawn.start([sys.executable, "-c", PROGRAM], env=environment)


async def die(process: subprocess.Popen[bytes]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, process.wait, 30)


def shown_ids(log_path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in log_path.read_text().splitlines()]


async def reconcile(sender: Recorder, sent: dict[str, str], log_path: Path) -> None:
    """Check that every message was shown once, and that every receipt and every echo has arrived."""
    await sender.until(lambda: all({"delivered", "read"} <= set(sender.events(m)) for m in sent), timeout=60)
    echoes = sorted(text for text in sent.values() if text.startswith("echo"))
    await sender.until(lambda: sorted(m.text for m in sender.messages) == echoes, timeout=30)
    assert sorted(shown_ids(log_path)) == sorted(sent)
    for message_id in sent:
        events = sender.events(message_id)
        assert events.index("delivered") < events.index("read")


@pytest.mark.whole_system
async def test_no_message_is_lost_or_shown_twice_when_killed_between_commit_and_ack(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    point = crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK
    async with business(live_network, tmp_path) as sender:
        first = start(robots_settings, crash_at=f"{point}:3")
        reader, echo = number_of(Behaviour.READS, 0), number_of(Behaviour.ECHOES, 0)
        await sender.until_registered(reader, echo)
        sent = {}
        for n in range(MESSAGES):
            text = f"echo {n}" if n % 2 else f"read {n}"
            sent[await sender.send(echo if n % 2 else reader, text)] = text
        await die(first)
        assert first.returncode == -9
        second = start(robots_settings, crash_at=f"{point}:2")
        await die(second)
        third = start(robots_settings)
        await reconcile(sender, sent, robots_settings.log_path)
        third.kill()
        await die(third)


@pytest.mark.whole_system
async def test_no_message_is_lost_or_shown_twice_when_killed_at_any_time(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    async with business(live_network, tmp_path) as sender:
        process = start(robots_settings)
        numbers = [number_of(kind, n) for kind in (Behaviour.READS, Behaviour.ECHOES) for n in range(2)]
        await sender.until_registered(*numbers)
        sent = {}
        for n in range(MESSAGES):
            text = f"echo {n}" if n % 4 > 1 else f"read {n}"
            sent[await sender.send(numbers[n % 4], text)] = text
            if n % 20 == 15:
                # As soon as any message was read since the last kill, in the middle of the others.
                marks = len(sender.notices)
                await sender.until(lambda marks=marks: len(sender.notices) > marks, timeout=30)  # type: ignore[misc]
                process.kill()
                await die(process)
                process = start(robots_settings)
        await reconcile(sender, sent, robots_settings.log_path)
        process.kill()
        await die(process)
