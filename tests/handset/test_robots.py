"""Robots on a real network."""

from __future__ import annotations

import asyncio
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from handset import errors
from handset.robots import robots
from handset.robots.behaviours import Behaviour, number_of
from handset.services import run_robots
from handset.settings import RobotsSettings
from tests.handset.business import business
from tests.handset.conftest import LiveNetwork, robots_running


def lines(settings: RobotsSettings) -> list[dict[str, Any]]:
    return [json.loads(line) for line in settings.log_path.read_text().splitlines()]


async def test_robots_of_several_prefixes_run_side_by_side(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    settings = robots_settings.model_copy(update={"per_kind": 1, "prefixes": ("15550", "919876")})
    async with robots_running(settings), business(live_network, tmp_path) as sender:
        sent = {
            (kind, prefix): await sender.send(number_of(kind, 0, prefix), "hello")
            for kind in (Behaviour.READS, Behaviour.BLOCKS)
            for prefix in settings.prefixes
        }
        expected = {Behaviour.READS: ["delivered", "read"], Behaviour.BLOCKS: ["refused"]}
        for (kind, _), message_id in sent.items():
            await sender.until(lambda kind=kind, id=message_id: sender.events(id) == expected[kind])  # type: ignore[misc]


async def test_each_kind_of_robot_behaves_as_its_number_states(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    async with robots_running(robots_settings), business(live_network, tmp_path) as sender:
        sent = {
            kind: await sender.send(number_of(kind, 1), f"to {kind.name} \u4f60\u597d")
            for kind in Behaviour
            if kind.is_registered
        }
        with pytest.raises(errors.NoSuchNumber):
            await sender.send(number_of(Behaviour.UNKNOWN, 1), "nobody")
        settled = (Behaviour.READS, Behaviour.ECHOES, Behaviour.SLOW, Behaviour.ANSWERS)
        await sender.until(lambda: all("read" in sender.events(sent[kind]) for kind in settled))
        await sender.until(lambda: "delivered" in sender.events(sent[Behaviour.DELIVERED_ONLY]))
        await sender.until(lambda: "refused" in sender.events(sent[Behaviour.BLOCKS]))
        await sender.until(lambda: len(sender.messages) == 1)
        assert {kind: sender.events(message_id) for kind, message_id in sent.items()} == {
            Behaviour.READS: ["delivered", "read"],
            Behaviour.DELIVERED_ONLY: ["delivered"],
            Behaviour.OFFLINE: [],
            Behaviour.ECHOES: ["delivered", "read"],
            Behaviour.SLOW: ["delivered", "read"],
            Behaviour.BLOCKS: ["refused"],
            Behaviour.ANSWERS: ["delivered", "read"],
        }
        (reply,) = sender.messages
        assert (reply.peer, reply.text) == (number_of(Behaviour.ECHOES, 1), "to ECHOES \u4f60\u597d")
        shown = {line["id"]: line for line in lines(robots_settings)}
    online = (Behaviour.READS, Behaviour.DELIVERED_ONLY, Behaviour.ECHOES, Behaviour.SLOW, Behaviour.ANSWERS)
    assert set(shown) == {sent[kind] for kind in online}
    line = shown[sent[Behaviour.READS]]
    assert line["number"] == number_of(Behaviour.READS, 1)
    assert line["attempt"] == 1
    assert line["sha256"] == hashlib.sha256("to READS \u4f60\u597d".encode()).hexdigest()


async def test_restarted_robots_keep_their_sessions(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    reader = number_of(Behaviour.READS, 0)
    async with business(live_network, tmp_path) as sender:
        async with robots_running(robots_settings):
            first = await sender.send(reader, "one")
            await sender.until(lambda: "read" in sender.events(first))
        second = await sender.send(reader, "two, while it is offline")
        async with robots_running(robots_settings):
            await sender.until(lambda: "read" in sender.events(second))
            third = await sender.send(reader, "three")
            await sender.until(lambda: "read" in sender.events(third))
    assert [line["id"] for line in lines(robots_settings)] == [first, second, third]


async def test_robots_register_again_when_the_network_lost_its_database(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    async with robots_running(robots_settings):
        pass
    await live_network.stop()
    for path in live_network.folder.glob("network.db*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    # A new database rejects a directory that has another database's marker.
    shutil.rmtree(live_network.folder / "blobs")
    await live_network.start()
    reader, blocker = number_of(Behaviour.READS, 0), number_of(Behaviour.BLOCKS, 0)
    async with business(live_network, tmp_path) as sender, robots_running(robots_settings):
        await sender.until_registered(reader, blocker, number_of(Behaviour.OFFLINE, 1))
        message = await sender.send(reader, "hello again")
        await sender.until(lambda: "read" in sender.events(message))


async def test_consumed_prekeys_are_replenished(
    live_network: LiveNetwork, robots_settings: RobotsSettings, tmp_path: Path
) -> None:
    reader = number_of(Behaviour.READS, 0)
    async with robots_running(robots_settings), business(live_network, tmp_path) as sender:
        assert sender.fleet is not None
        fetch = sender.fleet.fetch_bundles
        device = next(iter(sender.fleet.devices.values()))
        taken = [(await fetch(device, [reader]))[reader].prekey_id for _ in range(robots_settings.prekeys)]
        assert None not in taken
        while (fresh := (await fetch(device, [reader]))[reader].prekey_id) is None:
            pass
        assert fresh not in taken


async def test_two_robot_processes_cannot_share_a_store(robots_settings: RobotsSettings) -> None:
    async with robots_running(robots_settings):
        with pytest.raises(errors.AlreadyRunning):
            await run_robots(robots_settings, asyncio.Event(), asyncio.Event())


def test_the_unknown_kind_is_never_registered() -> None:
    numbers = robots.numbers(tuple(Behaviour), 3)
    assert len(numbers) == 3 * 7
    assert not [number for number in numbers if number.startswith("1555016")]
