"""Block list of the Cloud API: who can be blocked, what each call returns, and that Coreapps are notified."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.webapp.cloud.conftest import NUMBER, Cloud, check_headers, details, error
from tests.webapp.cloud.test_numbers import OTHER_NUMBER, check_beyond
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.test_numbers import second
from tidings.storage.business import blocked_users, changes, service_windows
from tidings.storage.business.blocked_users import BlockedUser
from tidings.storage.database import Database
from tidings.wire import core

PATH = f"/v25.0/{NUMBER}/block_users"
ACCOUNT = "15550000000"
DAY_MS = 86_400_000


async def record_inbound(database: Database, *users: str, ago: int = 1_000) -> None:
    """Record that users wrote some milliseconds ago."""
    now = int(time.time() * 1000)
    async with database.transaction() as connection:
        await service_windows.save_last_message_at(connection, ACCOUNT, dict.fromkeys(users, now - ago))


async def call(cloud: Cloud, method: str, *users: Any, **fields: Any) -> httpx.Response:
    body = {"messaging_product": "whatsapp", "block_users": [{"user": user} for user in users], **fields}
    given = {name: value for name, value in body.items() if value is not ...}
    return await cloud.http.request(method, PATH, json=given)


async def test_users_are_blocked_listed_and_unblocked(cloud: Cloud, database: Database, coreapp: FakeCoreapp) -> None:
    assert (await cloud.http.get(PATH)).text == '{"data":[]}'
    await record_inbound(database, "15550110001", "15550110002")
    response = await call(cloud, "POST", "+1 555-011-0001", 15550110002, "15550110001")
    check_headers(response)
    assert response.text == (
        '{"messaging_product":"whatsapp","block_users":{"added_users":['
        '{"input":"+1 555-011-0001","wa_id":"15550110001"},{"input":"15550110002","wa_id":"15550110002"},'
        '{"input":"15550110001","wa_id":"15550110001"}]}}'
    )
    assert [request.account for request in coreapp.requested(core.SettingsChanged)] == [ACCOUNT]
    async with database.reading() as connection:
        assert (await changes.list_versions(connection))["blocked_users"] == 1
    listed = (await cloud.http.get(PATH)).json()
    assert listed["data"] == [
        {"messaging_product": "whatsapp", "wa_id": "15550110001"},
        {"messaging_product": "whatsapp", "wa_id": "15550110002"},
    ]
    assert list(listed["paging"]) == ["cursors"]
    response = await call(cloud, "DELETE", "15550110001", "15550119999")
    assert response.text == (
        '{"messaging_product":"whatsapp","block_users":{"removed_users":['
        '{"input":"15550110001","wa_id":"15550110001"},{"input":"15550119999","wa_id":"15550119999"}]}}'
    )
    assert len((await cloud.http.get(PATH)).json()["data"]) == 1


async def test_only_users_who_wrote_within_24_hours_can_be_blocked(cloud: Cloud, database: Database) -> None:
    await record_inbound(database, "15550110001")
    await record_inbound(database, "15550110002", ago=DAY_MS + 1_000)
    response = await call(cloud, "POST", "15550110001", "15550110002", "15550110003", ACCOUNT, "abc")
    assert response.status_code == 400
    found = response.json()
    assert list(found) == ["messaging_product", "block_users", "error"]
    assert found["block_users"]["added_users"] == [{"input": "15550110001", "wa_id": "15550110001"}]
    outside = {
        "message": "(#131047) Re-engagement message",
        "code": 131047,
        "error_data": {"details": "only users who wrote within the last 24 hours can be blocked"},
    }
    failed = found["block_users"]["failed_users"]
    assert failed[0] == {"input": "15550110002", "errors": [outside]}
    assert [(each["input"], each["errors"][0]["code"]) for each in failed[1:]] == [
        ("15550110003", 131047),
        (ACCOUNT, 131021),
        ("abc", 131009),
    ]
    assert found["error"] == {
        "message": "(#139100) Failed to block/unblock users",
        "type": "OAuthException",
        "code": 139100,
        "error_data": {
            "messaging_product": "whatsapp",
            "details": "Failed to block some users, see the block_users response list for details",
        },
        "fbtrace_id": response.headers["x-fb-request-id"],
    }
    # A user who is blocked stays blocked without an error.
    await record_inbound(database, "15550110001", ago=2 * DAY_MS)
    assert (await call(cloud, "POST", "15550110001")).status_code == 200


async def test_a_number_blocks_at_most_64000_users(cloud: Cloud, database: Database) -> None:
    async with database.transaction() as connection:
        for start in range(0, 63_999, 1_000):
            stop = min(start + 1_000, 63_999)
            rows = [BlockedUser(ACCOUNT, str(15_560_000_000 + n), 1) for n in range(start, stop)]
            await blocked_users.add(connection, rows)
    await record_inbound(database, "15550110001", "15550110002")
    response = await call(cloud, "POST", "15550110001", "15550110002")
    assert response.status_code == 400
    (failed,) = response.json()["block_users"]["failed_users"]
    assert (failed["input"], failed["errors"][0]["code"]) == ("15550110002", 139101)
    assert (await call(cloud, "DELETE", "15550110001")).status_code == 200
    assert (await call(cloud, "POST", "15550110002")).status_code == 200


async def test_cursors_and_urls_lead_through_the_list_both_ways(cloud: Cloud, database: Database) -> None:
    users = [f"1555011000{n}" for n in range(5)]
    async with database.transaction() as connection:
        await blocked_users.add(connection, [BlockedUser(ACCOUNT, user, 1) for user in users])
    page = (await cloud.http.get(PATH, params={"limit": 2})).json()
    assert list(page["paging"]) == ["cursors", "next"]
    seen = [[entry["wa_id"] for entry in page["data"]]]
    while "next" in page["paging"]:
        assert page["paging"]["next"].startswith(f"http://127.0.0.1:0{PATH}?")
        page = (await cloud.http.get(page["paging"]["next"])).json()
        seen.append([entry["wa_id"] for entry in page["data"]])
    assert seen == [users[:2], users[2:4], users[4:]]
    assert list(page["paging"]) == ["cursors", "previous"]
    page = (await cloud.http.get(page["paging"]["previous"])).json()
    assert [entry["wa_id"] for entry in page["data"]] == users[2:4]
    page = (await cloud.http.get(page["paging"]["previous"])).json()
    assert [entry["wa_id"] for entry in page["data"]] == users[:2]
    assert list(page["paging"]) == ["cursors", "next"]


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    ("fields", "message", "reason"),
    [
        ({"messaging_product": ...}, "(#100) The parameter messaging_product is required.", None),
        ({"block_users": ...}, "(#100) The parameter block_users is required.", None),
        ({"block_users": []}, None, "block_users: should be a list of 1 to 1000 users"),
        ({"block_users": [{"user": "1"}] * 1001}, None, "block_users: should be a list of 1 to 1000 users"),
        ({"block_users": "15550110001"}, None, "block_users: should be a list of 1 to 1000 users"),
        (
            {"block_users": [{"user": "15550110001"}, {"user": [1]}]},
            None,
            "block_users[1].user: should be a phone number",
        ),
        ({"block_users": ["15550110001"]}, None, "block_users[0].user: should be a phone number"),
    ],
)
async def test_a_wrong_body_is_refused(
    cloud: Cloud, method: str, fields: dict[str, Any], message: str | None, reason: str | None
) -> None:
    response = await call(cloud, method, "15550110001", **fields)
    assert error(response)[:2] == (400, 100)
    if message is not None:
        assert error(response)[2] == message
    else:
        assert details(response) == reason


async def test_each_number_has_its_own_block_list(cloud: Cloud, database: Database) -> None:
    headers = await second(cloud.served, database)
    await record_inbound(database, "15550110001")
    assert (await call(cloud, "POST", "15550110001")).status_code == 200
    path = f"/{OTHER_NUMBER}/block_users"
    assert (await cloud.http.get(path, headers=headers)).json() == {"data": []}
    for method in ("GET", "POST", "DELETE"):
        check_beyond(await cloud.http.request(method, path), OTHER_NUMBER)
