"""Rate limits over ten minutes: exactly what they state, however much more is offered."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence
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
BURST_SECONDS = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A contacts call."""

    started: float  # Unix seconds
    status: int


async def check_contacts(business: Business, seconds: float) -> list[Call]:
    """Make contacts calls at a rate."""
    calls: list[Call] = []

    async def one(index: int) -> None:
        body = {"blocking": "wait", "contacts": [f"+{number(index % ROBOTS)}"]}
        started = time.time()
        calls.append(Call(started, (await business.call("POST", "/v1/contacts", body))[0]))

    begun = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        for position in range(int(seconds * CONTACTS)):
            wait = begun + position / CONTACTS - asyncio.get_running_loop().time()
            if wait > 0:
                await asyncio.sleep(wait)
            group.create_task(one(position))
    return calls


def rate_of(moments: Sequence[float], first: float, last: float) -> float:
    """Return the accepted requests per second, without the first seconds, in which the burst is used up."""
    since = first + BURST_SECONDS
    return sum(since <= moment < last for moment in moments) / (last - since)


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
        started = time.time()
        load, calls = await asyncio.gather(
            client.open_loop(business, work, MESSAGES), check_contacts(business, seconds)
        )
        ended = started + seconds

    accepted = [one for one in load.sent if one.request.accepted]
    figures = figures_of("test_rate_limits.py")
    messages = rate_of([one.started for one in accepted], started, ended)
    contacts = rate_of([call.started for call in calls if 200 <= call.status < 300], started, ended)
    attack = f"150 % of the limit for {seconds / 60:g} minutes"
    for what, measured, limit in (("messages", messages, 80.0), ("contacts calls", contacts, 40.0)):
        figures.record(attack, f"{what} accepted per second", measured, limit * 1.01, "1/s")
        figures.record(attack, f"{what} accepted per second", measured, limit * 0.99, "1/s", at_least=True)
    others = {one.request.status for one in load.sent} | {call.status for call in calls}
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
