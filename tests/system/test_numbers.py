"""Two numbers on real processes: the second is added while the installation runs, and is separate from the first."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness import polling
from harness.client import Business
from harness.installation import Installation
from tests.system.webhook import Webhook, listening

pytestmark = pytest.mark.whole_system

FIRST, SECOND = "15550000000", "15550000001"
ECHO, OTHER_ECHO, READER = "15550140001", "15550140002", "15550110001"
PACE = {"TIDINGS_HEARTBEAT_SECONDS": "0.5", "TIDINGS_LEASE_SECONDS": "2"}
PASSWORD = "Second-2026!"


@pytest.fixture
async def installation(
    database_engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Installation]:
    """Installation that is not started; two Coreapps, two shards per number, two robots of each kind."""
    mariadb = request.getfixturevalue("installation_mariadb") if database_engine == "mariadb" else None
    environment = {"TIDINGS_ROBOTS_PER_KIND": "4", **PACE}
    async with Installation(tmp_path, mariadb, environment, shards=2, coreapps=2) as prepared:
        yield prepared


@pytest.fixture
async def webhooks() -> AsyncIterator[tuple[tuple[Webhook, str], tuple[Webhook, str]]]:
    async with listening() as one, listening() as other:
        yield one, other


async def number(installation: Installation, *words: str) -> tuple[int, str]:
    """Run `tidings number` for the installation. Returns its exit status and its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "number", *words),
        env={**os.environ, **installation.common},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    return await process.wait(), output.decode()


async def add(installation: Installation, *options: str) -> Business:
    """Add the second number, and return its administrator's client."""
    status, output = await number(installation, "add", SECOND, *options)
    assert status == 0, output
    password = re.search(r"first password  (\S+)", output)
    assert password is not None, output
    business = Business(installation.api_port)
    credentials = base64.b64encode(f"admin@{SECOND}:{password[1]}".encode())
    status, response = await business.call(
        "POST", "/v1/users/login", {"new_password": PASSWORD}, authorization=b"Basic " + credentials
    )
    assert status == 200, response
    business.use(response["users"][0]["token"])
    return business


async def connected(business: Business) -> None:
    async def is_connected() -> bool:
        _, response = await business.call("GET", "/v1/health")
        found = response["health"]
        states = [found] if "gateway_status" in found else list(found.values())
        mine = [state for state in states if state.get("role", "primary_master") != "coreapp"]
        return bool(mine) and all(state["gateway_status"] == "connected" for state in mine)

    await polling.until(is_connected, seconds=60.0)


async def send(business: Business, to: str, text: str) -> str:
    status, response = await business.call("POST", "/v1/messages", {"to": to, "type": "text", "text": {"body": text}})
    assert status == 201, response
    message_id: str = response["messages"][0]["id"]
    return message_id


async def test_a_number_added_at_run_time_sends_and_receives_beside_the_first(
    installation: Installation, webhooks: tuple[tuple[Webhook, str], tuple[Webhook, str]]
) -> None:
    (webhook, url), (other_webhook, other_url) = webhooks
    await installation.start()
    first = await installation.business()
    await first.set_webhook(url)
    await first.check_contacts([ECHO])

    second = await add(installation)
    await connected(second)
    assert installation.read_rows("business", "SELECT shard FROM shards ORDER BY shard") in (
        [(0,), (1,), (32,), (33,)],
        ((0,), (1,), (32,), (33,)),
    )
    await second.set_webhook(other_url)
    await second.check_contacts([ECHO, OTHER_ECHO])

    ids = [await send(first, ECHO, "from the first")]
    other_ids = [await send(second, to, "from the second") for to in (ECHO, OTHER_ECHO)]
    await webhook.all_read(1)
    await other_webhook.all_read(2)
    assert (await webhook.received("text"))["text"]["body"] == "from the first"
    await other_webhook.until(lambda body: body.get("messages", [{}])[0].get("from") == OTHER_ECHO)
    statuses = {status["id"] for body in webhook.bodies for status in body.get("statuses", ())}
    other_statuses = {status["id"] for body in other_webhook.bodies for status in body.get("statuses", ())}
    assert statuses == set(ids)
    assert other_statuses == set(other_ids)
    bodies = {message["text"]["body"] for body in other_webhook.bodies for message in body.get("messages", ())}
    assert bodies == {"from the second"}
    # Each number is a separate device at the network.
    registered = f"SELECT COUNT(*) FROM registrations WHERE number IN ('{FIRST}', '{SECOND}')"
    assert installation.read_value("network", registered) == 2

    # A message of the first number is unknown to the second.
    marked = next(message["id"] for body in webhook.bodies for message in body.get("messages", ()))
    status, response = await second.call("PUT", f"/v1/messages/{marked}", {"status": "read"})
    assert (status, response["errors"][0]["code"]) == (404, 1006)

    # A recipient's number cannot be added, nor the same number again.
    status, output = await number(installation, "add", READER)
    assert status == 1
    assert f"{READER} is registered at the network, so it is a recipient's number" in output
    status, output = await number(installation, "add", SECOND)
    assert (status, f"{SECOND} is a number of this installation already" in output) == (1, True), output

    # A paused number is refused, and receives its callbacks.
    status, output = await number(installation, "pause", SECOND)
    assert status == 0, output

    async def is_paused() -> bool:
        status, response = await second.call("GET", "/v1/settings/application")
        return status == 503 and response["errors"][0]["code"] == 1011

    await polling.until(is_paused)
    await send(first, ECHO, "while the other is paused")
    await webhook.all_read(2)

    # Each Coreapp can be lost: the other one takes the shards of both numbers.
    status, output = await number(installation, "resume", SECOND)
    assert status == 0, output
    await installation.processes["coreapp"].kill9()
    await installation.wait_for_owners({"coreapp2": 4}, seconds=60.0)
    await connected(second)
    other_ids.append(await send(second, ECHO, "after the loss"))
    await other_webhook.all_read(3)

    # Removal: the number's rows and shards are gone, and the first number continues.
    status, output = await number(installation, "remove", SECOND)
    if status:
        status, output = await number(installation, "remove", SECOND, "--drop")
    assert status == 0, output
    assert installation.read_value("business", "SELECT COUNT(*) FROM shards") == 2
    for table in ("messages", "sessions", "contacts", "users", "application_settings"):
        count = f"SELECT COUNT(*) FROM {table} WHERE account = '{SECOND}'"
        assert installation.read_value("business", count) == 0, table
    status, response = await second.call("GET", "/v1/settings/application")
    assert (status, response["errors"][0]["code"]) == (401, 1005)
    await send(first, ECHO, "after the removal")
    await webhook.all_read(3)

    # The network still knows the removed number's device, so adding the number again must be asked for.
    status, output = await number(installation, "add", SECOND)
    assert status == 1, output
    again = await add(installation, "--registered")
    await connected(again)
    await again.set_webhook(other_url)
    await again.check_contacts([OTHER_ECHO])
    await send(again, OTHER_ECHO, "after the second addition")
    await other_webhook.all_read(4)
