"""The pair rate of the Cloud API: one message in 6 seconds to a recipient, with bursts that are paid off."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from coreapp.accepting.pair_rate import PairRate
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.manual_clock import ManualClock
from tidings.storage.business import messages
from tidings.wire import core

PEER, OTHER, NOBODY = "15550110001", "15550110002", "15550160000"
TEXT = b'{"type":"text","text":{"body":"hi"}}'


@dataclasses.dataclass
class Case:
    """Messages at given seconds, and the result of each: 0 for accepted, else the seconds to wait."""

    name: str
    at: list[float]
    waits: list[float]


CASES = [
    Case("one in 6 seconds is never refused", [0, 6, 12, 18, 24], [0, 0, 0, 0, 0]),
    Case("a second one at once is a burst", [0, 0, 6, 11.5, 12], [0, 0, 6, 0.5, 0]),
    Case("20 at once are paid off after 2 minutes", [0] * 20 + [6, 119, 120], [0] * 20 + [114, 1, 0]),
    Case("a burst has 45 messages", [0] * 46, [0] * 45 + [270]),
    Case("a burst lasts 6 seconds", [0, 5.9, 6], [0, 0, 6]),
    Case("after a pause there is a whole burst again", [0, 1000] + [1000] * 45, [0] * 46 + [270]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_messages_to_one_recipient_are_limited(case: Case) -> None:
    clock = ManualClock()
    rate, waits = PairRate(clock), []
    for at in case.at:
        clock.advance(at - clock.monotonic())
        waits.append(rate.take(PEER))
    assert waits == pytest.approx(case.waits)
    assert rate.take(OTHER) == 0


def test_ten_a_minute_and_600_an_hour_are_accepted_of_any_load() -> None:
    clock = ManualClock()
    rate, accepted = PairRate(clock), 0
    for _ in range(3600 * 4):
        accepted += rate.take(PEER) == 0
        clock.advance(0.25)
    # A burst is paid off before the next, so that the last one may add its size.
    assert 560 <= accepted <= 645


async def send(running: Running, to: str, **fields: Any) -> Any:
    return await running.client.call(
        lambda n: core.AcceptMessage(n, BUSINESS, to, "text", TEXT, checked_late=True, pair_limited=True, **fields)
    )


@pytest.mark.parametrize("to", [PEER, NOBODY])
async def test_a_message_over_the_rate_is_refused_and_not_stored(world: World, to: str) -> None:
    world.add_phones(PEER)
    clock = ManualClock()
    running = await world.start(clock=clock)
    await world.connected(running)
    for n in range(45):
        assert isinstance(await send(running, to, id=f"m{n}"), core.Accepted)
    refused = await send(running, to, id="m45")
    assert (refused.code, refused.retry_after) == (131056, 270)
    # A request that is repeated because its response was lost is not counted again.
    assert isinstance(await send(running, to, id="m7", repeated=True), core.Accepted)
    plain = await running.client.call(lambda n: core.AcceptMessage(n, BUSINESS, to, "text", TEXT, checked_late=True))
    assert isinstance(plain, core.Accepted)
    clock.advance(270)
    assert isinstance(await send(running, to, id="m46"), core.Accepted)
    async with world.database.reading() as connection:
        found = await messages.list_progress(connection, BUSINESS, ["m44", "m45", "m46"])
    assert {row.id for row in found} == {"m44", "m46"}
