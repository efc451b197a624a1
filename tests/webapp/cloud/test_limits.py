"""Limits of the Cloud API: each is off by default, refuses with its code, and holds for several Webapps."""

from __future__ import annotations

import pytest

from tests.webapp.cloud.conftest import Cloud, details, error
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core


async def served(serve: Serve, coreapp: FakeCoreapp, **changes: object) -> Cloud:
    """Serve the Cloud API with changed settings, logged in."""
    found = await serve(cloud_api=True, **changes)
    await found.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return Cloud(found, found.http)


async def test_no_limit_is_on_by_default(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    assert (await cloud.send()).status_code == 200
    assert (await cloud.served.send()).status_code == 201
    assert [question.pair_limited for question in coreapp.asked(core.AcceptMessage)] == [False, False]


@pytest.mark.parametrize("status", [400, 429])
async def test_the_pair_rate_is_counted_by_the_coreapp(serve: Serve, coreapp: FakeCoreapp, status: int) -> None:
    cloud = await served(serve, coreapp, cloud_pair_limit=True, cloud_throttle_status=status)
    coreapp.refuse(core.AcceptMessage, 131056, "too many messages to this number", 12)
    refused = await cloud.send()
    assert error(refused) == (status, 131056, "(#131056) (Business Account, Consumer Account) pair rate limit hit")
    assert details(refused) == "too many messages to this number"
    assert refused.headers["Retry-After"] == "12"
    [question] = coreapp.asked(core.AcceptMessage)
    assert question.pair_limited


async def test_messages_of_v1_have_no_pair_rate(serve: Serve, coreapp: FakeCoreapp) -> None:
    cloud = await served(serve, coreapp, cloud_pair_limit=True)
    assert (await cloud.served.send()).status_code == 201
    [question] = coreapp.asked(core.AcceptMessage)
    assert not question.pair_limited
