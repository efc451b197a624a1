"""Number, profile, tokens, registration and WABA of the Cloud API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.webapp.cloud.conftest import APP, NUMBER, WABA, Cloud, check_headers, error
from tests.webapp.conftest import basic
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import accounts
from tidings.storage.database import Database
from tidings.wire import core

P, W = f"/v25.0/{NUMBER}", f"/v25.0/{WABA}"
PROFILE = f"{P}/whatsapp_business_profile"


async def test_a_number_has_its_default_fields_and_requested_ones(cloud: Cloud) -> None:
    response = await cloud.http.get(P)
    check_headers(response)
    assert list(response.json()) == [
        "verified_name",
        "code_verification_status",
        "display_phone_number",
        "quality_rating",
        "platform_type",
        "throughput",
        "webhook_configuration",
        "id",
    ]
    response = await cloud.http.get(f"{P}?fields=display_phone_number,status,health_status{{entities}}, is_pin_enabled")
    assert list(response.json()) == ["display_phone_number", "status", "health_status", "is_pin_enabled", "id"]
    assert response.json()["display_phone_number"] == "+1 555-000-0000"
    assert response.json()["status"] == "DISCONNECTED"


async def test_the_numbers_of_a_waba_are_listed(cloud: Cloud) -> None:
    response = await cloud.http.get(f"{W}/phone_numbers")
    assert response.json()["data"] == [
        {
            "verified_name": "+1 555-000-0000",
            "display_phone_number": "+1 555-000-0000",
            "quality_rating": "GREEN",
            "id": NUMBER,
        }
    ]
    assert set(response.json()["paging"]) == {"cursors"}


async def test_a_profile_is_merged_and_unset_fields_are_absent(cloud: Cloud) -> None:
    response = await cloud.http.get(PROFILE)
    assert response.text == '{"data":[{"vertical":"UNDEFINED","messaging_product":"whatsapp"}]}'
    first = {"messaging_product": "whatsapp", "about": "Open 9 to 5", "vertical": "edu", "description": "d" * 512}
    assert (await cloud.http.post(PROFILE, json=first)).text == '{"success":true}'
    form = {"messaging_product": "whatsapp", "websites[]": ["https://example.com", "https://example.org"]}
    assert (await cloud.http.post(PROFILE, data=form)).text == '{"success":true}'
    response = await cloud.http.get(f"{PROFILE}?fields=about,address,description,email,websites,vertical")
    assert response.json() == {
        "data": [
            {
                "about": "Open 9 to 5",
                "description": "d" * 512,
                "websites": ["https://example.com", "https://example.org"],
                "vertical": "EDU",
                "messaging_product": "whatsapp",
            }
        ]
    }
    about = await cloud.http.get("/v1/settings/profile/about")
    assert about.json()["settings"]["profile"]["about"]["text"] == "Open 9 to 5"


@pytest.mark.parametrize("database_engine", ["sqlite", "mariadb"])
async def test_concurrent_changes_of_a_profile_are_merged(cloud: Cloud) -> None:
    for number in range(20):
        wanted = {"address": f"{number} Main Street", "description": f"Shop {number}", "email": f"{number}@example.com"}
        sent = [cloud.http.post(PROFILE, json={"messaging_product": "whatsapp", name: wanted[name]}) for name in wanted]
        assert {response.text for response in await asyncio.gather(*sent)} == {'{"success":true}'}
        found = (await cloud.http.get(f"{PROFILE}?fields={','.join(wanted)}")).json()["data"][0]
        assert found == {**wanted, "messaging_product": "whatsapp"}


@pytest.mark.parametrize(
    "fields",
    [
        {"about": "x" * 140},
        {"description": "x" * 513},
        {"vertical": "CIRCUS"},
        {"websites": ["https://a.example", "https://b.example", "https://c.example"]},
        {"profile_picture_handle": "4::x"},
    ],
)
async def test_a_wrong_profile_is_refused(cloud: Cloud, fields: dict[str, Any]) -> None:
    response = await cloud.http.post(PROFILE, json={"messaging_product": "whatsapp", **fields})
    assert error(response)[0] == 400
    response = await cloud.http.post(PROFILE, json=fields)
    assert error(response)[2] == "(#100) The parameter messaging_product is required."


async def test_a_token_is_described(cloud: Cloud) -> None:
    token = cloud.http.headers["Authorization"].split()[1]
    found = (await cloud.http.get("/debug_token", params={"input_token": token})).json()["data"]
    assert list(found) == [
        "app_id",
        "type",
        "application",
        "data_access_expires_at",
        "expires_at",
        "is_valid",
        "issued_at",
        "scopes",
        "granular_scopes",
        "user_id",
    ]
    assert found["app_id"] == APP
    assert found["is_valid"] is True
    assert found["expires_at"] - found["issued_at"] == 7 * 24 * 3600
    assert found["scopes"] == ["whatsapp_business_management", "whatsapp_business_messaging"]
    wrong = (await cloud.http.get("/v25.0/debug_token", params={"input_token": "x"})).json()["data"]
    assert (wrong["is_valid"], wrong["scopes"], wrong["error"]["code"]) == (False, [], 190)
    assert error(await cloud.http.get("/debug_token"))[2] == "(#100) The parameter input_token is required."
    assert (await cloud.http.get("/me")).json() == {"name": "admin", "id": found["user_id"]}


async def test_a_number_is_registered_with_a_code_and_then_has_a_pin(
    cloud: Cloud, coreapp: FakeCoreapp, database: Database
) -> None:
    register = {"messaging_product": "whatsapp", "pin": "123456"}
    assert error(await cloud.http.post(f"{P}/register", json=register))[:2] == (400, 133006)
    response = await cloud.http.post(f"{P}/request_code?code_method=SMS&language=en_US")
    assert response.text == '{"success":true}'
    assert (await cloud.http.post(f"{P}/verify_code", data={"code": "123-456"})).text == '{"success":true}'
    assert [request.code for request in coreapp.requested(core.VerifyCode)] == ["123456"]

    await database.commit(register_number)
    assert (await cloud.http.post(f"{P}/register", data=register)).text == '{"success":true}'
    assert (await cloud.http.post(f"{P}/register", json=register)).text == '{"success":true}'
    wrong = await cloud.http.post(f"{P}/register", json={**register, "pin": "654321"})
    assert error(wrong)[:2] == (400, 133005)
    found = (await cloud.http.get(f"{P}?fields=status,is_pin_enabled,code_verification_status")).json()
    assert found == {
        "status": "CONNECTED",
        "is_pin_enabled": True,
        "code_verification_status": "VERIFIED",
        "id": NUMBER,
    }
    assert (await cloud.http.post(P, json={"pin": "654321"})).text == '{"success":true}'
    assert (await cloud.http.post(f"{P}/register", json={**register, "pin": "654321"})).text == '{"success":true}'


async def register_number(connection: Any) -> None:
    """Store keys of the number, as a Coreapp does when it has registered the number."""
    account = accounts.Account(
        number="15550000000",
        registration_id=1,
        identity_key=b"sealed",
        device_token=b"sealed",
        data_key=b"wrapped",
        next_key_id=1,
    )
    await accounts.add_account(connection, account)


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (f"{P}/register", {"pin": "123456"}, "(#100) The parameter messaging_product is required."),
        (f"{P}/register", {"messaging_product": "whatsapp"}, "(#100) The parameter pin is required."),
        (f"{P}/register", {"messaging_product": "whatsapp", "pin": "12"}, "(#100) Invalid parameter"),
        (f"{P}/request_code", {}, "(#100) The parameter code_method is required."),
        (f"{P}/verify_code", {}, "(#100) The parameter code is required."),
        (f"{P}/verify_code", {"code": "x"}, "(#100) Invalid parameter"),
        (P, {}, "(#100) The parameter pin is required."),
    ],
)
async def test_a_wrong_registration_is_refused(cloud: Cloud, path: str, body: dict[str, Any], message: str) -> None:
    assert error(await cloud.http.post(path, json=body)) == (400, 100, message)


async def test_an_app_is_subscribed_and_unsubscribed(cloud: Cloud) -> None:
    path = f"{W}/subscribed_apps"
    assert (await cloud.http.get(path)).text == '{"data":[]}'
    for _ in range(2):
        assert (await cloud.http.post(path)).text == '{"success":true}'
    assert (await cloud.http.get(path)).json() == {
        "data": [{"whatsapp_business_api_data": {"link": "", "name": "Tidings", "id": APP}}]
    }
    assert (await cloud.http.delete(path)).text == '{"success":true}'
    assert (await cloud.http.get(path)).text == '{"data":[]}'


async def test_a_waba_is_described(cloud: Cloud) -> None:
    found = (await cloud.http.get(W)).json()
    assert list(found) == ["id", "name", "timezone_id", "message_template_namespace"]
    assert found["id"] == WABA
    response = await cloud.http.get(f"{W}?fields=nothing")
    assert error(response)[2] == (
        "(#100) Tried accessing nonexisting field (nothing) on node type (WhatsAppBusinessAccount)"
    )


@pytest.mark.parametrize("fields", ["display_phone_number,status{x,nothing", "analytics.start(1,status"])
async def test_fields_with_an_open_brace_are_refused(cloud: Cloud, fields: str) -> None:
    response = await cloud.http.get(f"{P}?fields={fields}")
    refused = response.json()["error"]
    assert (response.status_code, refused["code"]) == (400, 100)
    assert refused["error_data"]["details"] == "fields: a brace or bracket is not closed"


async def test_account_calls_need_an_administrator(cloud: Cloud) -> None:
    created = await cloud.http.post("/v1/users", json={"username": "clerk", "password": "Tidings-2026!x"})
    assert created.status_code == 201, created.text
    login = await cloud.http.post("/v1/users/login", headers=basic("clerk", "Tidings-2026!x"))
    cloud.http.headers["Authorization"] = "Bearer " + login.json()["users"][0]["token"]
    for method, path in (
        ("POST", P),
        ("POST", f"{P}/register"),
        ("POST", f"{W}/subscribed_apps"),
        ("GET", f"/v25.0/{APP}/subscriptions"),
        ("POST", f"/v25.0/{APP}/subscriptions"),
        ("DELETE", f"/v25.0/{APP}/subscriptions"),
        ("GET", f"{W}/message_templates"),
        ("POST", f"{W}/message_templates"),
    ):
        assert error(await cloud.http.request(method, path, json={}))[:2] == (403, 10)
    assert (await cloud.send()).status_code == 200


async def test_a_portfolio_owns_its_waba_and_has_none_of_a_client(cloud: Cloud) -> None:
    portfolio = "/v25.0/4529949791234566"
    owned = (await cloud.http.get(f"{portfolio}/owned_whatsapp_business_accounts")).json()
    assert [waba["id"] for waba in owned["data"]] == [WABA]
    assert (await cloud.http.get(f"{portfolio}/client_whatsapp_business_accounts")).text == '{"data":[]}'


@pytest.mark.parametrize("field", ["analytics", "conversation_analytics", "pricing_analytics"])
async def test_analytics_of_a_waba_are_left_out(cloud: Cloud, field: str) -> None:
    wanted = f"id,{field}.start(1700000000).end(1700086400).granularity(DAY)"
    response = await cloud.http.get(W, params={"fields": wanted})
    assert (response.status_code, response.json()) == (200, {"id": "2397639735729717"})


@pytest.mark.parametrize(
    ("method", "edge"),
    [
        ("POST", "phone_numbers"),
        ("POST", "upsert_message_templates"),
        ("GET", "message_template_previews"),
        ("GET", "message_template_library"),
        ("GET", "template_analytics"),
    ],
)
async def test_calls_of_a_waba_without_a_counterpart_are_refused(cloud: Cloud, method: str, edge: str) -> None:
    response = await cloud.http.request(method, f"{W}/{edge}")
    assert response.status_code == 400
    refused = response.json()["error"]
    assert (refused["code"], refused["error_subcode"]) == (100, 33)
    assert refused["message"].startswith(f"Unsupported {method.lower()} request. ")
