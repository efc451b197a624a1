"""Group on real processes while Coreapp, network and robots are killed: each message is shown once, and in order."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import polling
from harness.client import Business, UnexpectedResponse
from harness.installation import Installation
from tests.coreapp import webhook_schemas
from tests.system.webhook import Webhook
from tidings.aio import crashpoints

pytestmark = pytest.mark.whole_system

ROBOTS = [f"1555011000{n}" for n in range(8)]
SECONDS = 60.0
POINTS = (
    (crashpoints.AFTER_COMMIT_BEFORE_REPLY, 3),
    (crashpoints.AFTER_SEAL_BEFORE_COMMIT, 4),
    (crashpoints.AFTER_SEND_BEFORE_MARK, 3),
    (crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK, 3),
    (crashpoints.AFTER_200_BEFORE_MARK, 3),
)
# Between the commit of a message and its copies, and between the acknowledgements of the copies.
NETWORK_POINTS = (
    (crashpoints.AFTER_STORE_BEFORE_ACCEPTED, 1),
    (crashpoints.AFTER_DEVICE_ACK_BEFORE_ROW, 2),
)


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    environment = {"TIDINGS_ROBOTS_KINDS": "11", "TIDINGS_ROBOTS_PER_KIND": str(len(ROBOTS))}
    async with Installation(tmp_path, None, environment | {"TIDINGS_LEASE_SECONDS": "3"}) as prepared:
        yield prepared


class Group:
    """Group of the test."""

    def __init__(self, business: Business, sink: Webhook, id: str, installation: Installation) -> None:
        self.business = business
        self.sink = sink
        self.id = id
        self.installation = installation
        self.members: list[str] = []
        self.sent: dict[str, tuple[str, ...]] = {}  # by accepted message id: the members at that time
        self.before_gone: dict[str, list[str]] = {}  # by removed robot: the ids accepted until then

    async def patiently(self, method: str, path: str, body: Any = None) -> Any:
        """Repeat a call until it succeeds, as needed while the Coreapp is unreachable."""
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    return await self.business.check_call(method, path, body)
                except (UnexpectedResponse, OSError, EOFError):
                    await asyncio.sleep(0.2)

    async def invite(self, robot: str) -> None:
        """Invite a robot. Robots follow the link in a text."""
        (found,) = (await self.patiently("GET", f"/v1/groups/{self.id}/invite"))["groups"]
        await self.patiently("POST", "/v1/contacts", {"blocking": "wait", "contacts": [robot]})
        await self.patiently("POST", "/v1/messages", {"to": robot, "type": "text", "text": {"body": found["link"]}})
        await self.told("group_user_joined", robot)
        self.members.append(robot)

    async def put_out(self, robot: str) -> None:
        self.members.remove(robot)
        with contextlib.suppress(UnexpectedResponse, OSError, EOFError):
            await self.business.check_call("DELETE", f"/v1/groups/{self.id}/participants", {"wa_ids": [robot]})
        # The call may have been carried out without a response.
        async with asyncio.timeout(SECONDS):
            while robot in (await self.patiently("GET", f"/v1/groups/{self.id}"))["groups"][0]["participants"]:
                await self.patiently("DELETE", f"/v1/groups/{self.id}/participants", {"wa_ids": [robot]})
        self.before_gone[robot] = list(self.sent)

    async def told(self, kind: str, robot: str) -> None:
        await self.sink.until(
            lambda body: any(
                entry.get("system", {}).get("type") == kind and entry["system"].get("users") == [robot]
                for entry in body.get("messages", ())
            )
        )

    async def send(self, count: int) -> None:
        for _ in range(count):
            body = {"to": self.id, "recipient_type": "group", "type": "text", "text": {"body": str(len(self.sent))}}
            try:
                response = await self.business.check_call("POST", "/v1/messages", body)
            except (UnexpectedResponse, OSError, EOFError):
                # The outcome is unknown.
                continue
            self.sent[response["messages"][0]["id"]] = tuple(self.members)

    def shown(self, robot: str) -> list[str]:
        """Return the ids of the messages that a robot has shown, in order."""
        return [line.message_id for line in self.installation.list_shown() if line.number == robot]

    async def settled(self) -> None:
        """Wait until every member has shown the messages that were accepted while it was one."""

        def all_shown() -> bool:
            return all(
                message in set(self.shown(robot))
                for robot in self.members
                for message, members in self.sent.items()
                if robot in members
            )

        await polling.until(all_shown, seconds=SECONDS, pause=0.2)


async def test_every_group_message_is_shown_once_and_in_order_despite_kills(
    installation: Installation, webhook: tuple[Webhook, str]
) -> None:
    sink, url = webhook
    await installation.start()
    business = await installation.business()
    await business.set_webhook(url)
    (made,) = (await business.check_call("POST", "/v1/groups", {"subject": "Kills"}))["groups"]
    group = Group(business, sink, made["id"], installation)
    for robot in ROBOTS[:3]:
        await group.invite(robot)
    coreapp, network, robots = (installation.processes[name] for name in ("coreapp", "network", "robots"))
    newcomers = iter(ROBOTS[3:])
    for point, count in POINTS:
        await coreapp.stop()
        await coreapp.start({"TIDINGS_CRASH_AT": f"{point}:{count}"})
        sending = asyncio.create_task(group.send(15))
        async with asyncio.timeout(SECONDS):
            await coreapp.wait()
        await coreapp.start()
        await sending
        # One robot is removed and one joins: a new key each time.
        await group.put_out(group.members[0])
        await group.invite(next(newcomers))
        await group.send(3)
    for point, count in NETWORK_POINTS:
        await network.stop()
        await network.start({"TIDINGS_CRASH_AT": f"{point}:{count}"})
        sending = asyncio.create_task(group.send(15))
        async with asyncio.timeout(SECONDS):
            await network.wait()
        await network.start()
        await sending
        await group.send(3)
    for process in (network, coreapp, robots):
        sending = asyncio.create_task(group.send(15))
        await process.kill9()
        await process.start()
        await sending
    await group.send(3)
    await group.settled()
    for robot in ROBOTS:
        shown = [message for message in group.shown(robot) if message in group.sent]
        assert shown == sorted(set(shown)), robot
        # A removed robot reads nothing that was accepted after its removal.
        assert set(shown) <= set(group.before_gone.get(robot, shown)), robot
    last = next(reversed(group.sent))
    for robot in group.members:
        await sink.until(
            lambda body, robot=robot: any(  # type: ignore[misc]
                (entry["id"], entry["status"], entry["recipient_id"]) == (last, "read", robot)
                for entry in body.get("statuses", ())
            )
        )
    for body in sink.bodies:
        webhook_schemas.check(body)
