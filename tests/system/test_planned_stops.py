"""Planned stops of Coreapps under load: every response is 201, or a 503 after which nothing was done."""

from __future__ import annotations

import asyncio
import collections
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness import polling
from harness.client import Business
from harness.installation import Installation
from harness.mariadb import MariaDB
from tests.system.webhook import Webhook, listening
from tidings.wire.addresses import shard_of

pytestmark = pytest.mark.whole_system

CLIENTS = 48
STOPS = 6
PACE = {"TIDINGS_HEARTBEAT_SECONDS": "0.5", "TIDINGS_LEASE_SECONDS": "2", "TIDINGS_ROBOTS_PER_KIND": "8"}
NUMBERS = [f"1555011{n:04}" for n in range(8)]


@pytest.fixture
async def webhook() -> AsyncIterator[tuple[Webhook, str]]:
    async with listening() as found:
        yield found


class Clients:
    """Clients that post one message after the other, each on a separate connection."""

    def __init__(self, business: Business) -> None:
        self._business = business
        self._numbers = itertools.cycle(NUMBERS)
        self._over = asyncio.Event()
        self.accepted: list[str] = []
        self.counts: collections.Counter[int] = collections.Counter()
        self.other: list[tuple[int, Any]] = []  # (status, body) of responses other than 201, 429 and 503

    async def __aenter__(self) -> Clients:
        self._tasks = [asyncio.create_task(self._post_all()) for _ in range(CLIENTS)]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._over.set()
        await asyncio.gather(*self._tasks)

    async def _post_all(self) -> None:
        while not self._over.is_set():
            message = {"to": next(self._numbers), "type": "text", "text": {"body": "hello"}}
            status, response = await self._business.call("POST", "/v1/messages", message)
            self.counts[status] += 1
            if status == 201:
                self.accepted.append(response["messages"][0]["id"])
            elif status in (429, 503):
                await asyncio.sleep(0.1)
            else:
                self.other.append((status, response["errors"]))

    async def go_on(self) -> None:
        """Return when some more messages were accepted."""
        enough = len(self.accepted) + 2 * CLIENTS
        await polling.until(lambda: len(self.accepted) >= enough, seconds=60)


@pytest.mark.parametrize("coreapps", [1, 2])
async def test_planned_coreapp_stops_under_load_leave_no_unknown_outcome(
    tmp_path: Path, installation_mariadb: MariaDB, webhook: tuple[Webhook, str], coreapps: int
) -> None:
    _, url = webhook
    environment = {**PACE, "TIDINGS_MESSAGES_RATE": "10000", "TIDINGS_MESSAGES_BURST": "10000"}
    async with Installation(tmp_path, installation_mariadb, environment, shards=4, coreapps=coreapps) as installation:
        await installation.start()
        names = ["coreapp", "coreapp2"][:coreapps]
        owned = dict.fromkeys(names, 4 // coreapps)
        await installation.wait_for_owners(owned)
        business = await installation.business()
        await business.set_webhook(url)
        assert {shard_of(number, 4) for number in NUMBERS} == {0, 1, 2, 3}
        await business.check_contacts(NUMBERS)
        async with Clients(business) as clients:
            for name in itertools.islice(itertools.cycle(names), STOPS):
                await clients.go_on()
                await installation.processes[name].stop()
                await installation.processes[name].start()
                await installation.wait_for_owners(owned)
            await clients.go_on()
        print(f"{coreapps} Coreapps, {STOPS} stops: {dict(clients.counts)}")
        assert clients.other == []
        accepted = set(clients.accepted)
        assert len(accepted) == len(clients.accepted)
        await polling.until(lambda: accepted <= {shown.message_id for shown in installation.list_shown()}, seconds=60)
        shown = collections.Counter(entry.message_id for entry in installation.list_shown())
        assert {shown[message] for message in accepted} == {1}, "nobody sees a message twice"
