"""Limits of the Cloud API: each is off by default, refuses with its code, and holds for several Webapps."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.manual_clock import ManualClock
from tests.webapp.cloud.conftest import NUMBER, WABA, Cloud, details, error
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.test_account import register
from tests.webapp.test_numbers import SECOND, second
from tidings.storage.business import cloud_calls, cloud_limits, number_removal, numbers
from tidings.storage.database import Database
from tidings.wire import core


async def served(serve: Serve, coreapp: FakeCoreapp, **changes: object) -> Cloud:
    """Serve the Cloud API with changed settings, logged in."""
    found = await serve(cloud_api=True, **changes)
    await found.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return Cloud(found, found.http)


async def change(cloud: Cloud, database: Database, account: str = "15550000000", **values: object) -> None:
    """Change limits of a number as another process does, and have the Webapp read them."""
    async with database.transaction() as connection:
        await cloud_limits.change(connection, account, values)
    await cloud.served.parts.common.changes.run_once()


async def allow(cloud: Cloud, database: Database, *recipients: str) -> None:
    async with database.transaction() as connection:
        for recipient in recipients:
            await cloud_limits.add_recipient(connection, "15550000000", recipient)
    await cloud.served.parts.common.changes.run_once()


async def tiers(cloud: Cloud) -> tuple[str, str, str]:
    """Return the messaging limit as number and WABA show it."""
    fields = "messaging_limit_tier,whatsapp_business_manager_messaging_limit"
    number = (await cloud.http.get(f"/{NUMBER}", params={"fields": fields})).json()
    waba = (await cloud.http.get(f"/{WABA}", params={"fields": "whatsapp_business_manager_messaging_limit"})).json()
    shown = number["whatsapp_business_manager_messaging_limit"], waba["whatsapp_business_manager_messaging_limit"]
    return number["messaging_limit_tier"], *shown


async def test_no_limit_is_on_by_default(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    assert (await cloud.send()).status_code == 200
    assert (await cloud.served.send()).status_code == 201
    assert [request.pair_limited for request in coreapp.requested(core.AcceptMessage)] == [False, False]


@pytest.mark.parametrize("status", [400, 429])
async def test_the_pair_rate_is_counted_by_the_coreapp(serve: Serve, coreapp: FakeCoreapp, status: int) -> None:
    cloud = await served(serve, coreapp, cloud_pair_limit=True, cloud_throttle_status=status)
    coreapp.refuse(core.AcceptMessage, 131056, "too many messages to this number", 12)
    refused = await cloud.send()
    assert error(refused) == (status, 131056, "(#131056) (Business Account, Consumer Account) pair rate limit hit")
    assert details(refused) == "too many messages to this number"
    assert refused.headers["Retry-After"] == "12"
    [request] = coreapp.requested(core.AcceptMessage)
    assert request.pair_limited


async def test_messages_of_v1_have_no_pair_rate(serve: Serve, coreapp: FakeCoreapp) -> None:
    cloud = await served(serve, coreapp, cloud_pair_limit=True)
    assert (await cloud.served.send()).status_code == 201
    [request] = coreapp.requested(core.AcceptMessage)
    assert not request.pair_limited


async def test_the_messaging_limit_of_a_number_takes_precedence_over_that_of_the_installation(
    serve: Serve, coreapp: FakeCoreapp, database: Database
) -> None:
    cloud = await served(serve, coreapp, cloud_tier="TIER_1K")
    await cloud.send()
    assert await tiers(cloud) == ("TIER_1K", "TIER_1K", "TIER_1K")
    await change(cloud, database, tier="TIER_250")
    await cloud.send()
    assert await tiers(cloud) == ("TIER_250", "TIER_250", "TIER_250")
    await change(cloud, database, tier="TIER_OF_A_LATER_RELEASE")
    assert (await tiers(cloud))[0] == "TIER_1K"
    await change(cloud, database, tier="TIER_UNLIMITED")
    await cloud.send()
    assert await tiers(cloud) == ("TIER_UNLIMITED", "TIER_UNLIMITED", "TIER_UNLIMITED")
    await cloud.served.send()
    requested = coreapp.requested(core.AcceptMessage)
    assert [request.recipient_limit for request in requested] == [1000, 250, 0, 0]


async def test_a_refusal_by_the_messaging_limit_is_an_error(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.AcceptMessage, 131048, "too many recipients")
    refused = await cloud.send()
    assert error(refused) == (400, 131048, "(#131048) Spam rate limit hit")
    assert details(refused) == "too many recipients"


@pytest.mark.parametrize(
    ("to", "status"),
    [
        ("15550110001", 200),
        ("+1 (555) 011-0001", 200),
        (15550110001, 200),
        ("15550110002", 400),
        ("5550110001", 400),
    ],
)
async def test_a_number_in_test_mode_sends_to_its_recipients_only(
    cloud: Cloud, coreapp: FakeCoreapp, database: Database, to: object, status: int
) -> None:
    await allow(cloud, database, "15550110001")
    assert (await cloud.send(to="15550110002")).status_code == 200
    await change(cloud, database, is_test=True)
    response = await cloud.send(to=to)
    assert response.status_code == status, response.text
    if status == 400:
        assert error(response) == (400, 131030, "(#131030) Recipient phone number not in allowed list")
        assert details(response).startswith("Recipient phone number not in allowed list")
    assert len(coreapp.requested(core.AcceptMessage)) == 1 + (status == 200)
    # v1 has no test numbers.
    assert (await cloud.served.send(to="15550110002")).status_code == 201


async def test_test_mode_is_shown_and_ends(cloud: Cloud, database: Database) -> None:
    async def mode() -> str:
        return str((await cloud.http.get(f"/{NUMBER}", params={"fields": "account_mode"})).json()["account_mode"])

    assert await mode() == "LIVE"
    await change(cloud, database, is_test=True)
    assert await mode() == "SANDBOX"
    assert error(await cloud.send(to="not a number"))[:2] == (400, 131009)
    assert error(await cloud.send())[1] == 131030
    await change(cloud, database, is_test=False)
    assert await mode() == "LIVE"
    assert (await cloud.send()).status_code == 200


def usage(response: httpx.Response) -> tuple[str, int, int]:
    """Return type, percentage and minutes to wait of `x-business-use-case-usage`."""
    [(waba, [found])] = json.loads(response.headers["x-business-use-case-usage"]).items()
    assert (waba, found["total_cputime"], found["total_time"]) == (WABA, 0, 0)
    return found["type"], found["call_count"], found["estimated_time_to_regain_access"]


@pytest.mark.parametrize("status", [400, 429])
async def test_management_calls_of_an_hour_are_limited_for_all_webapps(
    serve: Serve, coreapp: FakeCoreapp, status: int
) -> None:
    clock = ManualClock()
    settings = {"clock": clock, "cloud_management_limit": True, "cloud_throttle_status": status}
    one, other = await served(serve, coreapp, **settings), await served(serve, coreapp, **settings)
    management = "whatsapp_business_management"
    assert usage(await one.http.get(f"/{NUMBER}")) == (management, 0, 0)
    assert usage(await other.http.get(f"/{WABA}/message_templates")) == (management, 1, 0)
    clock.advance(1200)
    for _ in range(99):
        await one.http.get(f"/{WABA}")
        last = await other.http.get(f"/{NUMBER}")
    assert usage(last) == (management, 100, 0)
    for cloud in (one, other):
        refused = await cloud.http.get(f"/{WABA}")
        assert error(refused) == (status, 80008, "(#80008) Rate limit issues")
        assert usage(refused) == (management, 100, 40)
        assert refused.headers["Retry-After"] == "2400"
        assert usage(await cloud.send()) == ("whatsapp", 0, 0)
        assert (await cloud.http.get("/me")).status_code == 200
        assert (await cloud.http.get(f"/{NUMBER}/unknown")).status_code == 400
    clock.advance(2400)
    assert usage(await one.http.get(f"/{WABA}")) == (management, 99, 0)


async def test_a_registered_number_may_make_5000_management_calls(
    serve: Serve, coreapp: FakeCoreapp, database: Database
) -> None:
    clock = ManualClock()
    cloud = await served(serve, coreapp, clock=clock, cloud_management_limit=True)
    await register(database)
    await cloud.http.get(f"/{NUMBER}")
    async with database.transaction() as connection:
        await connection.execute(cloud_calls.table.update().values(calls=4998))
    assert usage(await cloud.http.get(f"/{NUMBER}"))[1:] == (99, 0)
    assert usage(await cloud.http.get(f"/{NUMBER}"))[1:] == (100, 0)
    assert error(await cloud.http.get(f"/{NUMBER}"))[1] == 80008


async def test_management_calls_cost_no_statement_while_they_are_not_limited(cloud: Cloud, database: Database) -> None:
    shown = await cloud.http.get(f"/{NUMBER}")
    assert usage(shown) == ("whatsapp_business_management", 0, 0)
    async with database.reading() as connection:
        assert (await connection.execute(cloud_calls.table.select())).all() == []


async def level(cloud: Cloud) -> str:
    found = (await cloud.http.get(f"/{NUMBER}", params={"fields": "throughput"})).json()
    return str(found["throughput"]["level"])


async def test_messages_are_refused_while_the_throughput_is_upgraded(
    serve: Serve, coreapp: FakeCoreapp, database: Database
) -> None:
    clock = ManualClock()
    cloud = await served(serve, coreapp, clock=clock)
    ends_at = int(clock.now() + 30) * 1000
    await change(cloud, database, throughput="HIGH", upgrade_ends_at=ends_at)
    assert await level(cloud) == "STANDARD"
    clock.advance(10.5)
    refused = await cloud.send()
    assert error(refused) == (500, 131057, "(#131057) Account in maintenance mode")
    assert refused.headers["Retry-After"] == "20"
    assert (await cloud.served.send()).status_code == 201
    clock.advance(20)
    assert (await cloud.send()).status_code == 200
    assert await level(cloud) == "HIGH"
    await change(cloud, database, throughput="STANDARD", upgrade_ends_at=0)
    assert await level(cloud) == "STANDARD"


async def test_a_number_with_high_throughput_sends_1000_messages_a_second(
    serve: Serve, coreapp: FakeCoreapp, database: Database
) -> None:
    clock = ManualClock()
    cloud = await served(serve, coreapp, clock=clock, messages_rate=80.0, messages_burst=80.0)

    async def accepted(count: int) -> int:
        return sum([(await cloud.http.post("/v1/messages", json={})).status_code == 400 for _ in range(count)])

    assert await accepted(100) == 80
    await change(cloud, database, throughput="HIGH", upgrade_ends_at=1)
    clock.advance(1)
    assert await accepted(1010) == 1000
    await change(cloud, database, throughput="STANDARD", upgrade_ends_at=0)
    clock.advance(1)
    assert await accepted(100) == 80


async def test_an_unlimited_number_stays_unlimited(serve: Serve, coreapp: FakeCoreapp, database: Database) -> None:
    cloud = await served(serve, coreapp, messages_rate=0.0)
    for throughput in ("HIGH", "STANDARD"):
        await change(cloud, database, throughput=throughput)
        assert {(await cloud.http.post("/v1/messages", json={})).status_code for _ in range(100)} == {400}


async def test_the_limits_of_a_removed_number_end(serve: Serve, coreapp: FakeCoreapp, database: Database) -> None:
    clock = ManualClock()
    cloud = await served(serve, coreapp, clock=clock, messages_rate=80.0, messages_burst=80.0)
    headers = await second(cloud.served, database)
    await change(cloud, database, SECOND, throughput="HIGH", upgrade_ends_at=1)

    async def accepted(count: int) -> int:
        statuses = [(await cloud.http.post("/v1/messages", json={}, headers=headers)).status_code for _ in range(count)]
        return statuses.count(400)

    clock.advance(1)
    assert await accepted(100) == 100
    async with database.transaction() as connection:
        assert await number_removal.delete_page(connection, SECOND, cloud_limits.table) is None
        await numbers.delete(connection, SECOND)
    await cloud.served.parts.common.changes.run_once()
    # The number is added again, with its users as before.
    async with database.transaction() as connection:
        await numbers.add(connection, SECOND)
    await cloud.served.parts.numbers.poll()
    clock.advance(1)
    assert await accepted(100) == 80
