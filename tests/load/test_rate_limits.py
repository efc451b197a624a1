"""Rate limits over ten minutes: exactly what they state, however much more is offered."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from harness import client
from harness.client import Business, Sent
from harness.installation import Installation
from harness.sink_process import SinkProcess
from tests.load.scene import ENVIRONMENT, figures_of, number

pytestmark = pytest.mark.whole_system

MINUTES = 10.0
ROBOTS = 500
# Requests per second that are offered, half more than the limits.
MESSAGES, CONTACTS = 120.0, 60.0


async def check_contacts(business: Business, seconds: float) -> list[int]:
    """Make contacts calls at a rate. Returns their statuses."""
    statuses: list[int] = []

    async def one(index: int) -> None:
        body = {"blocking": "wait", "contacts": [f"+{number(index % ROBOTS)}"]}
        statuses.append((await business.call("POST", "/v1/contacts", body))[0])

    begun = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for position in range(int(seconds * CONTACTS)):
            wait = begun + position / CONTACTS - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)
            group.create_task(one(position))
    return statuses


async def test_80_messages_and_40_contacts_calls_a_second_are_accepted_over_10_minutes(
    tmp_path: Path, minutes: float | None
) -> None:
    seconds = 60.0 * (minutes or MINUTES)
    # The limits are the defaults.
    environment = {
        name: value
        for name, value in ENVIRONMENT.items()
        if name not in ("TIDINGS_MESSAGES_RATE", "TIDINGS_CONTACTS_RATE")
    }
    environment["TIDINGS_ROBOTS_PER_KIND"] = str(ROBOTS)
    async with (
        Installation(tmp_path, None, environment) as installation,
        SinkProcess(tmp_path, installation.webhook_secret) as sink,
    ):
        await installation.start()
        business = await installation.business()
        await business.set_webhook(sink.url)
        await business.check_contacts([number(index) for index in range(ROBOTS)])
        work = [(number(index % ROBOTS), f"limit {index}") for index in range(int(seconds * MESSAGES))]
        started = time.monotonic()
        load, statuses = await asyncio.gather(
            client.open_loop(business, work, MESSAGES), check_contacts(business, seconds)
        )
        took = time.monotonic() - started

    accepted = [one for one in load.sent if one.request.accepted]
    figures = figures_of("test_rate_limits.py")
    messages = len(accepted) / took
    contacts = sum(200 <= status < 300 for status in statuses) / took
    for what, measured, limit in (("messages", messages, 80.0), ("contacts calls", contacts, 40.0)):
        figures.record("150 % of the limit", f"{what} accepted per second", measured, limit * 1.01, "1/s")
        figures.record(
            "150 % of the limit", f"{what} accepted per second", measured, limit * 0.99, "1/s", at_least=True
        )
    others = {one.request.status for one in load.sent} | set(statuses)
    assert others <= {200, 201, 429}, "something else than the limit refused requests"
    _require_even(accepted, seconds)


def _require_even(accepted: list[Sent], seconds: float) -> None:
    """Check that no ten seconds accept more than the limit and its burst: the limit also holds in between."""
    counts: dict[int, int] = {}
    first = min(one.started for one in accepted)
    for one in accepted:
        counts[int((one.started - first) // 10)] = counts.get(int((one.started - first) // 10), 0) + 1
    whole = [counts.get(index, 0) for index in range(1, int(seconds // 10) - 1)]
    assert not whole or max(whole) <= 80 * 10 + 80, whole
