"""Concurrent calls of the Cloud API about one number: no change is lost, and no limit is exceeded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable

import httpx
import pymysql
import pytest

from tests.manual_clock import ManualClock
from tests.webapp.cloud import test_blocks, test_qr_codes, test_uploads
from tests.webapp.cloud.conftest import NUMBER, WABA, Cloud, error
from tests.webapp.cloud.test_limits import served, usage
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.test_numbers import FIRST, SECOND, add_number, first_log_in
from tidings.storage.business import accounts, blocked_users, cloud_calls, cloud_uploads, message_qr_codes, numbers
from tidings.storage.business.accounts import Account
from tidings.storage.business.blocked_users import BlockedUser
from tidings.storage.business.cloud_calls import CallsOfHour
from tidings.storage.business.cloud_uploads import CloudUpload
from tidings.storage.business.message_qr_codes import MessageQrCode
from tidings.storage.database import Connection, Database


@pytest.fixture(params=["sqlite", "mariadb"])
def database_engine(request: pytest.FixtureRequest) -> str:
    """Kind of database. SQLite's writing transactions run one after the other, MariaDB's at the same time."""
    return str(request.param)


@pytest.fixture(autouse=True)
async def first_number(database: Database) -> None:
    """Add the first number, as the start of a Webapp does."""
    async with database.transaction() as connection:
        await numbers.add_first(connection, FIRST)


async def statuses(calls: Iterable[Awaitable[httpx.Response]]) -> list[int]:
    """Return the sorted HTTP statuses of concurrent calls."""
    return sorted([response.status_code for response in await asyncio.gather(*calls)])


async def connect(cloud: Cloud) -> None:
    """Open the connections to the database, so that the calls of the test start their transactions together."""
    assert await statuses(cloud.http.get(f"/{NUMBER}") for _ in range(12)) == [200] * 12


async def test_no_change_of_settings_is_lost(cloud: Cloud) -> None:
    path = f"/{NUMBER}/conversational_automation"
    changes = (
        {"enable_welcome_message": True},
        {"prompts": ["Book a flight"]},
        {"commands": [{"command_name": "tickets", "command_description": "Book flight tickets"}]},
    )
    await cloud.http.post(path, json={"enable_welcome_message": False, "prompts": [], "commands": []})
    assert await statuses(cloud.http.post(path, json=change) for change in changes) == [200, 200, 200]
    assert (await cloud.http.get(path)).json() == changes[0] | changes[1] | changes[2]


async def test_a_number_gets_no_more_than_2000_qr_codes(cloud: Cloud, database: Database) -> None:
    async with database.transaction() as connection:
        for n in range(1_999):
            await message_qr_codes.save(connection, MessageQrCode(FIRST, f"CODE{n:010}", "x", 1))
    await connect(cloud)
    assert await statuses(test_qr_codes.create(cloud) for _ in range(6)) == [200, *[400] * 5]


async def test_a_number_gets_no_more_than_100_unfinished_uploads(cloud: Cloud, database: Database) -> None:
    now = int(time.time() * 1000)
    async with database.transaction() as connection:
        for n in range(99):
            await cloud_uploads.add(connection, CloudUpload(f"upload{n}", FIRST, "image/png", 9, 0, now))
    await connect(cloud)
    assert await statuses(test_uploads.start(cloud) for _ in range(6)) == [200, *[400] * 5]


async def test_a_number_blocks_no_more_than_64000_users(cloud: Cloud, database: Database) -> None:
    rows = [BlockedUser(FIRST, str(15_560_000_000 + n), 1) for n in range(63_999)]
    async with database.transaction() as connection:
        for start in range(0, 63_999, 1_000):
            await blocked_users.add(connection, rows[start : start + 1_000])
    users = [f"1555011000{n}" for n in range(6)]
    await test_blocks.record_inbound(database, *users)
    await connect(cloud)
    assert await statuses(test_blocks.call(cloud, "POST", user) for user in users) == [200, *[400] * 5]


async def test_a_management_call_is_counted_again_after_a_conflict(
    serve: Serve, coreapp: FakeCoreapp, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = await served(serve, coreapp, cloud_management_limit=True)
    original = cloud_calls.count
    calls: list[str] = []

    async def conflict_once(connection: Connection, account: str, *, limit: int, now: int) -> CallsOfHour:
        calls.append(account)
        found = await original(connection, account, limit=limit, now=now)
        if len(calls) == 1:
            raise pymysql.err.OperationalError(1213, "Deadlock found when trying to get lock")
        return found

    monkeypatch.setattr(cloud_calls, "count", conflict_once)
    assert usage(await cloud.http.get(f"/{NUMBER}")) == ("whatsapp_business_management", 0, 0)
    assert len(calls) == 2
    # 1 of 200 was counted, so this is the second.
    assert usage(await cloud.http.get(f"/{NUMBER}")) == ("whatsapp_business_management", 1, 0)


async def test_management_calls_are_counted_for_all_numbers_of_a_waba(
    serve: Serve, coreapp: FakeCoreapp, database: Database
) -> None:
    cloud = await served(serve, coreapp, clock=ManualClock(), cloud_management_limit=True)
    await add_number(database, waba_of=FIRST)
    await cloud.served.parts.numbers.poll()
    headers = await first_log_in(cloud.served)
    for _ in range(100):
        last = await cloud.http.get(f"/{WABA}")
        other = await cloud.http.get(f"/{WABA}", headers=headers)
    assert (usage(last)[1:], usage(other)[1:]) == ((99, 0), (100, 0))
    assert error(await cloud.http.get(f"/{WABA}"))[1] == 80008
    assert error(await cloud.http.get(f"/{WABA}", headers=headers))[1] == 80008
    # One registered number is enough.
    async with database.transaction() as connection:
        await accounts.add_account(connection, Account(SECOND, 1, b"sealed", b"sealed", b"wrapped"))
    assert usage(await cloud.http.get(f"/{WABA}")) == ("whatsapp_business_management", 4, 0)
