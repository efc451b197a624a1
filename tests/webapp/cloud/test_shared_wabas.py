"""Several numbers of one WABA: they share app, callbacks and templates, and each token sends from its own number."""

from __future__ import annotations

import pytest

from tests.media_samples import PNG
from tests.webapp.cloud.conftest import APP, NUMBER, WABA, Cloud, error
from tests.webapp.cloud.test_callbacks import receiving, subscription
from tests.webapp.cloud.test_numbers import OTHER_NUMBER, OTHER_WABA, TEMPLATE, TEXT, check_beyond
from tests.webapp.cloud.test_uploads import template as sample
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.test_numbers import FIRST, SECOND, add_number, first_log_in
from tidings.storage.business import cloud_limits, number_removal, numbers
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.account.service import RegistrationService, RegistrationState

Headers = dict[str, str]


@pytest.fixture
async def second(cloud: Cloud, database: Database) -> Headers:
    """Header of the administrator of a second number, which shares the WABA of the first one."""
    await add_number(database, waba_of=FIRST)
    await cloud.served.parts.numbers.poll()
    return await first_log_in(cloud.served)


async def test_the_numbers_of_a_waba_are_listed_for_each_of_their_tokens(cloud: Cloud, second: Headers) -> None:
    for headers in ({}, second):
        listed = (await cloud.http.get(f"/{WABA}/phone_numbers", headers=headers)).json()["data"]
        assert [(one["id"], one["display_phone_number"]) for one in listed] == [
            (NUMBER, "+1 555-000-0000"),
            (OTHER_NUMBER, "+1 555-000-0001"),
        ]
    first = (await cloud.http.get(f"/{WABA}/phone_numbers?limit=1")).json()
    assert [one["id"] for one in first["data"]] == [NUMBER]
    rest = (await cloud.http.get(first["paging"]["next"])).json()
    assert [one["id"] for one in rest["data"]] == [OTHER_NUMBER]
    check_beyond(await cloud.http.get(f"/{OTHER_WABA}/phone_numbers", headers=second), OTHER_WABA)


async def test_pages_of_numbers_follow_the_number_and_describe_only_those_they_show(
    cloud: Cloud, second: Headers, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = "15550000002"
    await add_number(database, third, waba_of=FIRST)
    await cloud.served.parts.numbers.poll()
    described: list[str] = []
    state = RegistrationService.state

    async def counted(service: RegistrationService, account: str) -> RegistrationState:
        described.append(account)
        return await state(service, account)

    monkeypatch.setattr(RegistrationService, "state", counted)
    page = (await cloud.http.get(f"/{WABA}/phone_numbers?limit=2")).json()
    assert described == [FIRST, SECOND]
    last = (await cloud.http.get(page["paging"]["next"])).json()
    assert [one["display_phone_number"] for one in last["data"]] == ["+1 555-000-0002"]
    async with database.transaction() as connection:
        await numbers.delete(connection, SECOND)
    await cloud.served.parts.numbers.poll()
    previous = (await cloud.http.get(last["paging"]["previous"])).json()
    assert [one["id"] for one in previous["data"]] == [NUMBER]
    assert described == [FIRST, SECOND, third, FIRST]


async def test_a_token_sends_from_its_own_number_only(cloud: Cloud, second: Headers, coreapp: FakeCoreapp) -> None:
    assert (await cloud.http.post(f"/{OTHER_NUMBER}/messages", json=TEXT, headers=second)).status_code == 200
    check_beyond(await cloud.http.post(f"/{NUMBER}/messages", json=TEXT, headers=second), NUMBER)
    check_beyond(await cloud.http.post(f"/{OTHER_NUMBER}/messages", json=TEXT), OTHER_NUMBER)
    assert [request.account for request in coreapp.requested(core.AcceptMessage)] == [SECOND]


async def test_the_waba_and_its_app_are_the_same_for_all_its_numbers(cloud: Cloud, second: Headers) -> None:
    for path in (f"/{WABA}", f"/{APP}", f"/{WABA}/subscribed_apps"):
        shown = [(await cloud.http.get(path, headers=headers)).json() for headers in ({}, second)]
        assert shown[0] == shown[1]
    token = second["Authorization"].removeprefix("Bearer ")
    described = (await cloud.http.get("/debug_token", params={"input_token": token})).json()["data"]
    assert described["app_id"] == APP
    assert described["granular_scopes"][0]["target_ids"] == [WABA]
    health = (await cloud.http.get(f"/{OTHER_NUMBER}?fields=health_status", headers=second)).json()["health_status"]
    assert [entity["id"] for entity in health["entities"]][:2] == [OTHER_NUMBER, WABA]


async def test_the_messaging_limit_belongs_to_the_waba(
    cloud: Cloud, second: Headers, coreapp: FakeCoreapp, database: Database
) -> None:
    async with database.transaction() as connection:
        await cloud_limits.change(connection, FIRST, {"tier": "TIER_250"})
        # Limits of a number that shares a WABA have no effect, its test mode has.
        await cloud_limits.change(connection, SECOND, {"tier": "TIER_10K", "is_test": True})
        await cloud_limits.add_recipient(connection, SECOND, "15550110001")
    await cloud.served.parts.common.changes.run_once()
    for number, headers in ((NUMBER, {}), (OTHER_NUMBER, second)):
        assert (await cloud.http.post(f"/{number}/messages", json=TEXT, headers=headers)).status_code == 200
        shown = (await cloud.http.get(f"/{number}?fields=messaging_limit_tier,account_mode", headers=headers)).json()
        assert shown["messaging_limit_tier"] == "TIER_250"
        assert shown["account_mode"] == ("SANDBOX" if headers else "LIVE")
        waba = await cloud.http.get(f"/{WABA}?fields=whatsapp_business_manager_messaging_limit", headers=headers)
        assert waba.json()["whatsapp_business_manager_messaging_limit"] == "TIER_250"
    assert [request.recipient_limit for request in coreapp.requested(core.AcceptMessage)] == [250, 250]


async def test_templates_belong_to_the_waba(cloud: Cloud, second: Headers, coreapp: FakeCoreapp) -> None:
    created = (await cloud.http.post(f"/{WABA}/message_templates", json=TEMPLATE, headers=second)).json()
    for headers in ({}, second):
        listed = (await cloud.http.get(f"/{WABA}/message_templates", headers=headers)).json()["data"]
        assert [(one["id"], one["name"]) for one in listed] == [(created["id"], "greeting")]
        assert (await cloud.http.get(f"/{created['id']}", headers=headers)).json()["status"] == "APPROVED"
        assert (await cloud.http.get("/v1/configs/templates", headers=headers)).json()["templates"]
    refused = await cloud.http.post(f"/{WABA}/message_templates", json=TEMPLATE)
    assert refused.json()["error"]["error_subcode"] == 2388043
    message = {**TEXT, "type": "template", "template": {"name": "greeting", "language": {"code": "en_US"}}}
    del message["text"]
    assert (await cloud.http.post(f"/{NUMBER}/messages", json=message)).status_code == 200
    assert (await cloud.http.post(f"/{OTHER_NUMBER}/messages", json=message, headers=second)).status_code == 200
    assert [request.account for request in coreapp.requested(core.AcceptMessage)] == [FIRST, SECOND]
    changed = {"components": [{"type": "BODY", "text": "Good day"}]}
    assert (await cloud.http.post(f"/{created['id']}", json=changed, headers=second)).json() == {"success": True}
    assert (await cloud.http.delete(f"/{WABA}/message_templates?name=greeting", headers=second)).status_code == 200
    assert error(await cloud.http.post(f"/{NUMBER}/messages", json=message))[:2] == (404, 132001)


async def test_a_file_that_one_number_uploaded_is_a_sample_for_all_but_a_picture_only_for_itself(
    cloud: Cloud, second: Headers
) -> None:
    given = {"file_length": len(PNG), "file_type": "image/png"}
    session = (await cloud.http.post(f"/{APP}/uploads", params=given, headers=second)).json()["id"]
    done = await cloud.http.post(f"/{session}", content=PNG, headers={**second, "file_offset": "0"})
    handle = done.json()["h"]
    made = await cloud.http.post(f"/{WABA}/message_templates", json=sample(handle))
    assert made.status_code == 200, made.text
    picture = {"messaging_product": "whatsapp", "profile_picture_handle": handle}
    assert error(await cloud.http.post(f"/{NUMBER}/whatsapp_business_profile", json=picture))[:2] == (400, 100)
    own = await cloud.http.post(f"/{OTHER_NUMBER}/whatsapp_business_profile", json=picture, headers=second)
    assert own.status_code == 200, own.text


async def test_callbacks_of_app_and_waba_are_those_of_all_numbers_and_outlive_the_one_that_set_them(
    cloud: Cloud, second: Headers, database: Database, coreapp: FakeCoreapp
) -> None:
    async with receiving() as receiver:
        url = f"{receiver.url}/hook"
        number = {"webhook_configuration": {"override_callback_uri": url, "verify_token": "open sesame"}}
        override = {"override_callback_uri": url, "verify_token": "open sesame"}
        for path, body in (
            (f"/{APP}/subscriptions", subscription(url)),
            (f"/{WABA}/subscribed_apps", override),
            (f"/{OTHER_NUMBER}", number),
        ):
            coreapp.requests.clear()
            assert (await cloud.http.post(path, json=body, headers=second)).json() == {"success": True}
            told = {request.account for request in coreapp.requested(core.SettingsChanged)}
            assert told == ({SECOND} if path == f"/{OTHER_NUMBER}" else {FIRST, SECOND})
    shown = (await cloud.http.get(f"/{NUMBER}?fields=webhook_configuration")).json()["webhook_configuration"]
    assert shown == {"whatsapp_business_account": url, "application": url}
    async with database.transaction() as connection:
        for table in number_removal.list_tables():
            await number_removal.delete_page(connection, SECOND, table)
    shown = (await cloud.http.get(f"/{NUMBER}?fields=webhook_configuration")).json()["webhook_configuration"]
    assert shown == {"whatsapp_business_account": url, "application": url}
    assert len((await cloud.http.get(f"/{WABA}/subscribed_apps")).json()["data"]) == 1
