"""Small settings of a number in the Cloud API: stored, merged, shown and checked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.cloud.conftest import NUMBER, Cloud, details, error
from tests.webapp.cloud.test_numbers import OTHER_NUMBER, check_beyond
from tests.webapp.conftest import body
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import ordinary
from tests.webapp.test_numbers import second
from tidings.storage.database import Database
from tidings.wire import core

P = f"/v25.0/{NUMBER}"
SUCCESS = '{"success":true}'
GOOD = body("business_encryption")


async def test_the_identity_check_is_set_and_coreapps_are_notified(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    path = f"{P}/settings"
    assert (await cloud.http.get(path)).text == '{"user_identity_change":{"enable_identity_key_check":false}}'
    wanted = {"user_identity_change": {"enable_identity_key_check": True}}
    assert (await cloud.http.post(path, json=wanted)).text == SUCCESS
    assert (await cloud.http.get(path)).json() == wanted
    assert len(coreapp.requested(core.SettingsChanged)) == 1


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ({}, 100, "(#100) The parameter user_identity_change is required."),
        ({"user_identity_change": {}}, 131008, "(#131008) Required parameter is missing"),
        ({"user_identity_change": {"enable_identity_key_check": "maybe"}}, 131009, None),
        ({"user_identity_change": "x"}, 131009, None),
        ({"calling": {"status": "ENABLED"}}, 3, None),
        ({"storage_configuration": {"status": "IN_COUNTRY_STORAGE_ENABLED"}}, 3, None),
        ({"payload_encryption": {"status": "ENABLED"}}, 3, None),
    ],
)
async def test_wrong_settings_are_refused(cloud: Cloud, given: dict[str, Any], code: int, message: str | None) -> None:
    refused = error(await cloud.http.post(f"{P}/settings", json=given))
    assert refused[:2] == (400, code)
    assert message is None or refused[2] == message


async def test_automation_is_merged_and_shown_as_a_field_of_the_number(cloud: Cloud) -> None:
    path = f"{P}/conversational_automation"
    assert (await cloud.http.get(f"{P}?fields=conversational_automation")).json() == {"id": NUMBER}
    commands = [{"command_name": "tickets", "command_description": "Book flight tickets"}]
    first = {"enable_welcome_message": False, "prompts": ["Book a flight"], "commands": commands}
    assert (await cloud.http.post(path, json=first)).text == SUCCESS
    assert (await cloud.http.post(path, json={"prompts": ["Plan a vacation"]})).text == SUCCESS
    expected = {**first, "prompts": ["Plan a vacation"]}
    assert (await cloud.http.get(path)).json() == expected
    shown = (await cloud.http.get(f"{P}?fields=conversational_automation")).json()
    assert shown == {"conversational_automation": expected, "id": NUMBER}
    wrong: list[dict[str, Any]] = [
        {"prompts": ["x"] * 5},
        {"prompts": ["x" * 81]},
        {"commands": commands * 31},
        {"commands": [{"command_name": "x" * 33, "command_description": "x"}]},
        {"commands": [{"command_name": "x", "command_description": "x" * 257}]},
    ]
    for given in wrong:
        assert error(await cloud.http.post(path, json=given))[:2] == (400, 131009)
    assert error(await cloud.http.post(path, json={}))[2] == "(#100) The parameter enable_welcome_message is required."
    assert (await cloud.http.get(path)).json() == expected


async def test_commerce_settings_are_merged_from_the_query_too(cloud: Cloud) -> None:
    path = f"{P}/whatsapp_commerce_settings"
    assert (await cloud.http.get(path)).text == '{"data":[]}'
    assert (await cloud.http.post(f"{path}?is_cart_enabled=true")).text == SUCCESS
    assert (await cloud.http.post(path, json={"is_catalog_visible": False})).text == SUCCESS
    assert (await cloud.http.get(path)).json() == {"data": [{"is_cart_enabled": True, "is_catalog_visible": False}]}
    assert error(await cloud.http.post(path, json={"is_cart_enabled": 7}))[:2] == (400, 131009)


async def test_the_key_of_flows_is_that_of_v1(cloud: Cloud) -> None:
    path, of_v1 = f"{P}/whatsapp_business_encryption", "/v1/settings/business/whatsapp_business_encryption"
    assert (await cloud.http.get(path)).text == '{"data":[]}'
    assert (await cloud.http.post(path, data=GOOD["public_key"])).text == SUCCESS
    assert (await cloud.http.get(of_v1)).json() == GOOD["response"]
    key = GOOD["response"]["settings"]["business"]["whatsapp_business_encryption"]["business_public_key"]
    entry = {"business_public_key": key, "business_public_key_signature_status": "VALID"}
    assert (await cloud.http.get(path)).json() == {"data": [entry]}
    wrong = await cloud.http.post(path, json={"business_public_key": "no key"})
    assert error(wrong)[:2] == (400, 100)
    assert details(wrong) == "business_public_key: should be a public key in PEM"
    long = await cloud.http.post(path, json={"business_public_key": "x" * 4_097})
    assert details(long) == "business_public_key: should have at most 4096 characters"
    missing = await cloud.http.post(path, json={})
    assert error(missing)[2] == "(#100) The parameter business_public_key is required."


async def test_changes_need_an_administrator_and_the_own_number(cloud: Cloud, database: Database) -> None:
    bearer = await ordinary(cloud.served)
    edges = ("settings", "conversational_automation", "whatsapp_commerce_settings", "whatsapp_business_encryption")
    for edge in edges:
        refused = await cloud.http.post(f"{P}/{edge}", json={"prompts": []}, headers=bearer)
        assert error(refused)[:2] == (403, 10)
    headers = await second(cloud.served, database)
    await cloud.http.post(f"{P}/whatsapp_commerce_settings", json={"is_cart_enabled": True})
    for edge in edges:
        check_beyond(await cloud.http.get(f"{P}/{edge}", headers=headers), NUMBER)
    found = await cloud.http.get(f"/{OTHER_NUMBER}/whatsapp_commerce_settings", headers=headers)
    assert found.json() == {"data": []}
