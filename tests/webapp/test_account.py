"""`/v1/account` and `/v1/settings/account/two-step`."""

from __future__ import annotations

import asyncio
import textwrap
from typing import Any

import pytest

from tests.webapp.conftest import Serve, Served, body, check_headers, code, errors
from tests.webapp.coreapp_links import noticed
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import check_is_for_administrators
from tidings.storage.business import accounts, layouts, registrations
from tidings.storage.business.accounts import Account
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.account import certificate, service

NUMBER = "15550000000"
META = {"version": "2.57.2", "api_status": "stable"}
SHARDS = "/v1/account/shards"
TWO_STEP = "/v1/settings/account/two-step"
PIN = "123456"


async def register(database: Database) -> None:
    async with database.transaction() as connection:
        await accounts.add_account(connection, Account(NUMBER, 1, b"sealed", b"sealed", b"wrapped"))


def without(content: dict[str, Any], field: str) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != field}


async def test_registering_a_registered_number_returns_201(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await register(database)
    response = await api.http.post("/v1/account", json=body("account"))
    assert response.status_code == 201
    assert response.json() == {"account": [{"vname": "Tidings Ltd."}], "meta": META}
    check_headers(response)
    nameless = await api.http.post("/v1/account", json=body("account") | {"cert": "AAAA"})
    assert (nameless.status_code, nameless.json()["account"]) == (201, [{"vname": NUMBER}])
    other = await api.http.post("/v1/account", json=body("account") | {"phone_number": "5550000001"})
    assert code(other) == (403, 1005)
    assert (await api.http.post("/v1/account/verify", json={"code": "123456"})).status_code == 201
    assert not coreapp.requested(core.RequestCode)
    assert not coreapp.requested(core.VerifyCode)


async def test_a_certificate_may_contain_line_breaks(api: Served, coreapp: FakeCoreapp) -> None:
    lines = textwrap.fill(body("account")["cert"], 76) + "\n"
    response = await api.http.post("/v1/account", json=body("account") | {"cert": lines})
    assert (response.status_code, response.json()["account"][0]["vname"]) == (202, "Tidings Ltd.")


async def test_an_empty_pin_counts_as_no_pin(api: Served, coreapp: FakeCoreapp) -> None:
    assert (await api.http.post("/v1/account", json=body("account") | {"pin": ""})).status_code == 202
    shards = {"cc": "1", "phone_number": "5550000000", "shards": 1, "pin": "", "cert": ""}
    assert (await api.http.post(SHARDS, json=shards)).status_code == 201
    await api.http.post(TWO_STEP, json={"pin": PIN})
    for path, content in (("/v1/account", body("account") | {"pin": ""}), (SHARDS, shards)):
        assert code(await api.http.post(path, json=content)) == (400, 1008)


@pytest.mark.parametrize("method", ["sms", "voice"])
async def test_a_code_request_returns_the_name_in_the_certificate(
    api: Served, coreapp: FakeCoreapp, method: str
) -> None:
    response = await api.http.post("/v1/account", json=body("account") | {"method": method})
    assert response.status_code == 202
    assert response.json() == {"account": [{"vname": "Tidings Ltd."}], "meta": META}
    assert [request.account for request in coreapp.requested(core.RequestCode)] == [NUMBER]


@pytest.mark.parametrize("cert", ["AAAA", "Cg==", "CgIiAA==", "eyJ4IjoxfQ=="])
async def test_an_unreadable_certificate_name_is_replaced_by_the_number(api: Served, cert: str) -> None:
    response = await api.http.post("/v1/account", json=body("account") | {"cert": cert})
    assert response.json()["account"] == [{"vname": NUMBER}]


def test_a_certificate_name_with_a_line_break_is_ignored() -> None:
    assert certificate.display_name("CgYiBFQKaXM=") is None


@pytest.mark.parametrize(
    ("cc", "phone_number"),
    [("+1", "555 000 0000"), (1, 5550000000), ("155", "50000000"), ("1", "(555) 000-0000"), ("1", "+15550000000")],
)
async def test_numbers_are_accepted_in_every_usual_form(api: Served, cc: Any, phone_number: Any) -> None:
    response = await api.http.post("/v1/account", json=body("account") | {"cc": cc, "phone_number": phone_number})
    assert response.status_code == 202


@pytest.mark.parametrize("field", ["cc", "phone_number", "method", "cert"])
async def test_a_missing_field_is_named(api: Served, field: str) -> None:
    response = await api.http.post("/v1/account", json=without(body("account"), field))
    assert code(response) == (400, 1008)
    assert errors(response)[0]["details"] == f"{field}: is missing"


@pytest.mark.parametrize("case", [pytest.param(case, id=case["case"]) for case in body("account_wrong")])
async def test_an_invalid_request_requests_no_code(api: Served, coreapp: FakeCoreapp, case: dict[str, Any]) -> None:
    response = await api.http.post("/v1/account", json=body("account") | case["change"])
    assert code(response) == (case["status"], case["code"])
    assert errors(response)[0]["details"].startswith(case["details"])
    assert not coreapp.requested(core.RequestCode)


async def test_too_frequent_code_requests_get_429_with_retry_after(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.RequestCode, 1015, "a code was sent a moment ago", 30)
    response = await api.http.post("/v1/account", json=body("account"))
    assert code(response) == (429, 1015)
    assert response.headers["Retry-After"] == "30"


@pytest.mark.parametrize("given", ["123456", "123-456", "123 456", 123456])
async def test_a_correct_code_registers_the_number(api: Served, coreapp: FakeCoreapp, given: Any) -> None:
    response = await api.http.post("/v1/account/verify", json={"code": given})
    assert response.status_code == 201
    assert response.json() == {"meta": META}
    assert [(request.account, request.code) for request in coreapp.requested(core.VerifyCode)] == [(NUMBER, "123456")]


@pytest.mark.parametrize(
    ("content", "expected"), [({}, 1008), ({"code": "12345"}, 1009), ({"code": "abcdef"}, 1009), ({"code": None}, 1009)]
)
async def test_a_malformed_code_is_refused_without_a_coreapp_call(
    api: Served, coreapp: FakeCoreapp, content: Any, expected: int
) -> None:
    assert code(await api.http.post("/v1/account/verify", json=content)) == (400, expected)
    assert not coreapp.requested(core.VerifyCode)


async def test_a_wrong_code_gets_400_with_error_1009(api: Served, coreapp: FakeCoreapp) -> None:
    coreapp.refuse(core.VerifyCode, 1009, "code: is wrong, used, expired, or was tried too often")
    assert code(await api.http.post("/v1/account/verify", json={"code": "000000"})) == (400, 1009)


def shards(count: Any, **more: Any) -> dict[str, Any]:
    return {"cc": "1", "phone_number": "5550000000", "shards": count} | more


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, "4"])
async def test_shards_set_before_the_first_coreapp_take_effect_at_once(api: Served, count: Any) -> None:
    response = await api.http.post(SHARDS, json=shards(count))
    assert response.status_code == 201
    expected = {"account": {"shards": int(count), "active_shards": int(count)}, "meta": META}
    assert response.json() == expected
    found = await api.http.get(SHARDS)
    assert (found.status_code, found.json()) == (200, expected)


async def test_a_slow_layout_change_is_reported_with_its_progress(
    api: Served, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CHANGE_SECONDS", 0.01)
    async with database.transaction() as connection:
        await layouts.create(connection, 1)
    response = await api.http.post(SHARDS, json=shards(4))
    assert response.status_code == 201
    assert response.json()["account"] == {"shards": 4, "active_shards": 1, "moved": 0}
    async with database.transaction() as connection:
        await layouts.note_moved(connection, 12)
    assert (await api.http.get(SHARDS)).json()["account"] == {"shards": 4, "active_shards": 1, "moved": 12}
    async with database.transaction() as connection:
        await layouts.replace(connection, await layouts.find(connection))
    assert (await api.http.get(SHARDS)).json()["account"] == {"shards": 4, "active_shards": 4}


async def test_a_layout_change_gets_its_response_when_it_is_complete(api: Served, database: Database) -> None:
    async with database.transaction() as connection:
        await layouts.create(connection, 1)

    async def change() -> None:
        layout = layouts.Layout()
        while not layout.is_changing:
            async with database.transaction() as connection:
                layout = await layouts.find(connection)
                if layout.is_changing:
                    await layouts.replace(connection, layout)
            await asyncio.sleep(0)

    changing = asyncio.create_task(change())
    response = await api.http.post(SHARDS, json=shards(2))
    await changing
    assert response.json()["account"] == {"shards": 2, "active_shards": 2}


async def test_the_default_number_of_shards_is_one(api: Served) -> None:
    assert (await api.http.get(SHARDS)).json()["account"] == {"shards": 1, "active_shards": 1}


@pytest.mark.parametrize("count", [0, 3, 5, 64, -1, "many", None, 1.5])
async def test_unsupported_shard_counts_are_refused(api: Served, count: Any) -> None:
    assert code(await api.http.post(SHARDS, json=shards(count))) == (400, 1009)
    assert (await api.http.get(SHARDS)).json()["account"]["shards"] == 1


async def test_a_shard_request_for_another_phone_number_is_refused(api: Served) -> None:
    assert code(await api.http.post(SHARDS, json=shards(2, phone_number="5550000009"))) == (403, 1005)


@pytest.mark.parametrize("path", ["/v1/account", SHARDS])
async def test_two_step_verification_requires_the_pin(api: Served, path: str) -> None:
    content = shards(2) if path == SHARDS else body("account")
    response = await api.http.post(TWO_STEP, json={"pin": PIN})
    assert (response.status_code, response.json()) == (200, {"meta": META})
    missing = await api.http.post(path, json=content)
    assert code(missing) == (400, 1008)
    assert errors(missing)[0]["details"].startswith("pin: is missing")
    wrong = await api.http.post(path, json=content | {"pin": "654321"})
    assert code(wrong) == (400, 1009)
    assert errors(wrong)[0]["details"] == "pin: is wrong"
    assert (await api.http.post(path, json=content | {"pin": PIN})).is_success
    assert (await api.http.delete(TWO_STEP)).status_code == 200
    assert (await api.http.post(path, json=content)).is_success


async def test_a_registration_passes_the_pin_to_the_coreapp(api: Served, coreapp: FakeCoreapp) -> None:
    assert (await api.http.post("/v1/account", json=body("account"))).is_success
    assert (await api.http.post("/v1/account", json=body("account") | {"pin": PIN})).is_success
    assert [request.pin for request in coreapp.requested(core.RequestCode)] == ["", PIN]


@pytest.mark.parametrize("sent", ["123456", "123-456", "1234567890123456", "1234 5678 9012 3456"])
async def test_a_code_has_6_to_16_digits(api: Served, coreapp: FakeCoreapp, sent: str) -> None:
    assert (await api.http.post("/v1/account/verify", json={"code": sent})).status_code == 201
    (request,) = coreapp.requested(core.VerifyCode)
    assert request.code == sent.replace(" ", "").replace("-", "")


async def test_a_pin_is_stored_as_a_hash(api: Served, database: Database) -> None:
    await api.http.post(TWO_STEP, json={"pin": PIN})
    async with database.reading() as connection:
        kept = await registrations.find_registration(connection, NUMBER)
    assert kept.pin_hash.startswith("$argon2id$")
    assert PIN not in repr(kept)


@pytest.mark.parametrize(
    ("content", "expected"),
    [({}, 1008), ({"pin": "12345"}, 1009), ({"pin": "1234567"}, 1009), ({"pin": "１２３４５６"}, 1009), ([], 1009)],
)
async def test_a_pin_must_have_six_digits(api: Served, content: Any, expected: int) -> None:
    assert code(await api.http.post(TWO_STEP, json=content)) == (400, expected)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/account"),
        ("POST", "/v1/account/verify"),
        ("GET", SHARDS),
        ("POST", SHARDS),
        ("POST", TWO_STEP),
        ("DELETE", TWO_STEP),
    ],
)
async def test_account_endpoints_require_an_administrator(api: Served, method: str, path: str) -> None:
    await check_is_for_administrators(api, method, path)


@pytest.mark.parametrize("path", ["/v1/account", "/v1/account/verify"])
async def test_account_requests_without_a_coreapp_get_503(serve: Serve, coreapp: FakeCoreapp, path: str) -> None:
    api = await serve(owner_timeout=0.05)
    await api.log_in()
    await coreapp.stop()
    await noticed()
    assert code(await api.http.post(path, json=body("account") | {"code": "123456"})) == (503, 1011)
