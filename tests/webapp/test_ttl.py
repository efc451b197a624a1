"""`ttl` of a message: accepted forms, and the value that reaches the Coreapp."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.conftest import Served, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core

DAY = 86_400
TAKEN = [
    (1, 1),
    (DAY, DAY),
    (10**12, 365 * DAY),
    ("P1D", DAY),
    ("PT30S", 30),
    ("PT1H30M", 5_400),
    ("P1DT12H", 129_600),
    ("P2W", 14 * DAY),
    ("P1M", 30 * DAY),
    ("P1Y", 365 * DAY),
    ("P999999999Y", 365 * DAY),
    ("PT0.5S", 1),
    ("PT1,5M", 90),
    (None, 0),
    ("", 0),
    ({}, 0),
]
REFUSED: list[Any] = [
    *(0, -1, 1.5, True, [], {"seconds": 5}, ["P1D"]),
    *("60", "P", "PT", "P1", "P1DT", "1D", "p1d", "P1D ", "P1H", "PT1D", "P-1D", "P0D", "P1D1Y", "PT1S\n", "P1.D"),
]


@pytest.mark.parametrize(("ttl", "seconds"), TAKEN, ids=repr)
async def test_seconds_and_iso_durations_reach_the_coreapp(
    api: Served, coreapp: FakeCoreapp, ttl: Any, seconds: int
) -> None:
    assert (await api.send(ttl=ttl)).status_code == 201
    assert [request.ttl for request in coreapp.requested(core.AcceptMessage)] == [seconds]


async def test_other_formats_of_a_time_to_live_are_refused(api: Served, coreapp: FakeCoreapp) -> None:
    for ttl in REFUSED:
        response = await api.send(ttl=ttl)
        assert code(response) == (400, 1010), ttl
        assert errors(response)[0]["details"].startswith("ttl: should be a positive integer of seconds or an ISO 8601")
    assert not coreapp.requests
