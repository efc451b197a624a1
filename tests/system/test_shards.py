"""Four shards on two Coreapps, real processes: what one could do alone the two do together, and one for the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.client import Business
from harness.installation import Installation
from tests.system import test_groups
from tests.system.webhook import Webhook, listening
from tidings.wire.addresses import shard_of

pytestmark = pytest.mark.whole_system

ROBOTS = [f"155501100{n:02}" for n in range(2)] + [f"155501101{n:02}" for n in range(2)]
PACE = {"TIDINGS_HEARTBEAT_SECONDS": "0.5", "TIDINGS_LEASE_SECONDS": "2"}


@pytest.fixture
async def installation(tmp_path: Path) -> AsyncIterator[Installation]:
    """Not started; on SQLite."""
    environment = {"TIDINGS_ROBOTS_PER_KIND": "8", **PACE}
    async with Installation(tmp_path, None, environment, shards=4, coreapps=2) as prepared:
        yield prepared


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    async with listening() as found:
        yield found


async def send(business: Business, to: str, text: str) -> str:
    message = {"to": to, "type": "text", "text": {"body": text}}
    sent: str = (await business.must("POST", "/v1/messages", message))["messages"][0]["id"]
    return sent


async def test_a_group_has_participants_of_every_shard(
    installation: Installation, webhook: tuple[Webhook, str], tmp_path: Path
) -> None:
    starting = asyncio.create_task(
        test_groups.test_a_group_is_made_joined_spoken_to_answered_and_left(installation, webhook, tmp_path)
    )
    async with asyncio.timeout(30):
        while installation.processes["webapp"].pid is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await installation.until_owners({"coreapp": 2, "coreapp2": 2})
    await starting


async def test_a_stopped_coreapp_hands_over_at_once_and_a_killed_one_is_replaced_in_time(
    installation: Installation, webhook: tuple[Webhook, str]
) -> None:
    sink, url = webhook
    await installation.start()
    await installation.until_owners({"coreapp": 2, "coreapp2": 2})
    business = await installation.business()
    await business.set_webhook(url)
    numbers = [f"1555011{n:04}" for n in range(8)]
    assert {shard_of(number, 4) for number in numbers} == {0, 1, 2, 3}
    await business.check_contacts(numbers)

    async def reach_all() -> float:
        """A message to each, from the call to its answer; the longest, in seconds."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        sent = await asyncio.gather(*(send(business, number, "hello") for number in numbers))
        took = loop.time() - started
        for message_id in sent:
            await sink.until(
                lambda body, wanted=message_id: any(  # type: ignore[misc]
                    (entry["id"], entry["status"]) == (wanted, "delivered") for entry in body.get("statuses", ())
                )
            )
        return took

    await reach_all()
    second = installation.processes["coreapp2"]
    stopping = asyncio.create_task(second.stop())
    await installation.until_owners({"coreapp": 4}, seconds=10)
    handed_over = await reach_all()
    await stopping
    await second.start()
    await installation.until_owners({"coreapp": 2, "coreapp2": 2})
    await reach_all()
    await second.kill9()
    replaced = await reach_all()
    print(f"handed over: answers within {handed_over:.2f} s; killed: within {replaced:.2f} s")
    assert replaced < 10
    assert installation.owners() == {"coreapp": 4}
