"""Helpers for group tests of the network: HTTP calls, and the content of notices."""

from __future__ import annotations

import json
from typing import Any

from tests.network.support import ALICE, BOB, Client, Network, until_there_are
from tidings.wire import device


async def call(
    network: Network, method: str, number: str, path: str = "", body: Any = None, **more: Any
) -> tuple[int, Any]:
    """Make one HTTP call as `number`."""
    return await network.request(method, f"/v1/groups/{number}{path}", body, token=network.tokens[number], **more)


async def done(
    network: Network, method: str, number: str, path: str = "", body: Any = None, **more: Any
) -> dict[str, Any]:
    """Make one HTTP call as `number`, which must succeed."""
    status, response = await call(network, method, number, path, body, **more)
    assert status in (200, 201), response
    assert isinstance(response, dict)
    return response


async def refused(network: Network, method: str, number: str, path: str = "", body: Any = None, **more: Any) -> str:
    """Return the status and the reason of a call that must fail."""
    status, response = await call(network, method, number, path, body, **more)
    assert status >= 400, response
    return f"{status} {response['error']['reason']}"


async def make(network: Network, creator: str, *others: str, subject: str = "Lunch") -> str:
    """Create a group that `others` join, and return its id."""
    group: str = (await done(network, "POST", creator, "", {"subject": subject}))["id"]
    code = (await done(network, "GET", creator, f"/{group}/invite"))["code"]
    for other in others:
        await done(network, "POST", other, "/join", {"code": code})
    return group


async def code_of(network: Network, admin: str, group: str) -> str:
    code: str = (await done(network, "GET", admin, f"/{group}/invite"))["code"]
    return code


def participants(group: dict[str, Any]) -> dict[str, bool]:
    return {each["number"]: each["admin"] for each in group["participants"]}


async def changes(client: Client, count: int) -> list[dict[str, Any]]:
    """Return the contents of the next deliveries, all of which must be notices about a group, and acknowledge
    them."""
    deliveries = await client.deliveries(count)
    assert {delivery.kind for delivery in deliveries} <= {device.GROUP_CHANGED}
    client.ack(*deliveries)
    return [{**json.loads(delivery.body), "group": delivery.group, "from": delivery.sender} for delivery in deliveries]


def words(notices: list[dict[str, Any]]) -> list[str]:
    """Return the change and the numbers of each notice as one string."""
    return [" ".join([notice["change"], *notice["numbers"]]) for notice in notices]


def group_send(client: Client, sender: str, group: str, id: str, epoch: int, **more: object) -> int:
    return client.send(sender, group, id, **{"kind": device.GROUP, "epoch": epoch, "body": b"sealed", **more})


async def refusal(client: Client) -> str:
    return (await client.next(device.Refused)).reason


async def pair_in_group(network: Network) -> tuple[str, Client, Client]:
    """Return a group of Alice and Bob, and the connections of both. Both have received the notices of its
    creation, which are no longer stored."""
    await network.register(ALICE, BOB)
    group = await make(network, ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    await changes(alice, 2)
    await changes(bob, 1)
    await bob.nothing_came()
    await until_there_are(network, rows=[], messages=[])
    return group, alice, bob
