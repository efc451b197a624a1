"""The Cloud API of several numbers: each has its own ids, and the token decides which of them a call may name."""

from __future__ import annotations

import httpx
import pytest

from tests.webapp.cloud.conftest import APP, NUMBER, WABA, Cloud, error
from tests.webapp.conftest import Serve
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.test_numbers import SECOND, add_number, first_log_in, second
from tidings.storage.business import numbers
from tidings.storage.database import Database
from tidings.wire import core

# Ids that 15550000001 has in every installation.
OTHER_NUMBER, OTHER_WABA, OTHER_APP = "1497702026252175", "2488245372847625", "3951556525498061"
TEXT = {"messaging_product": "whatsapp", "to": "15550110001", "text": {"body": "Hello"}}
TEMPLATE = {
    "name": "greeting",
    "language": "en_US",
    "category": "UTILITY",
    "components": [{"type": "BODY", "text": "Hello"}],
}
BEYOND = (
    "Object with ID '{}' does not exist, cannot be loaded due to missing permissions, or does not support this "
    "operation."
)


def check_beyond(response: httpx.Response, node: str) -> None:
    """Check that the response is the error of an object of another number."""
    status, code, message = error(response)
    assert (status, code, response.json()["error"]["error_subcode"]) == (400, 100, 33)
    assert BEYOND.format(node) in message


async def test_each_number_sends_from_its_own_phone_number_id(
    cloud: Cloud, database: Database, coreapp: FakeCoreapp
) -> None:
    headers = await second(cloud.served, database)
    assert (await cloud.send()).status_code == 200
    sent = await cloud.http.post(f"/v25.0/{OTHER_NUMBER}/messages", json=TEXT, headers=headers)
    assert sent.status_code == 200, sent.text
    assert [each.account for each in coreapp.requested(core.AcceptMessage)] == ["15550000000", SECOND]
    for node, bearer, app, waba in ((NUMBER, {}, APP, WABA), (OTHER_NUMBER, headers, OTHER_APP, OTHER_WABA)):
        shown = (await cloud.http.get(f"/{node}", params={"fields": "id,display_phone_number"}, headers=bearer)).json()
        assert shown["id"] == node
        assert shown["display_phone_number"] == ("+1 555-000-0001" if bearer else "+1 555-000-0000")
        listed = (await cloud.http.get(f"/{waba}/phone_numbers", headers=bearer)).json()["data"]
        assert [each["id"] for each in listed] == [node]
        assert (await cloud.http.get(f"/{app}", headers=bearer)).json()["id"] == app


async def test_ids_of_another_number_do_not_exist_for_a_token(
    cloud: Cloud, database: Database, coreapp: FakeCoreapp
) -> None:
    headers = await second(cloud.served, database)
    own = dict(cloud.http.headers)
    for bearer, node, waba, app in ((own, OTHER_NUMBER, OTHER_WABA, OTHER_APP), (headers, NUMBER, WABA, APP)):
        check_beyond(await cloud.http.post(f"/v25.0/{node}/messages", json=TEXT, headers=bearer), node)
        check_beyond(await cloud.http.get(f"/{node}", headers=bearer), node)
        check_beyond(await cloud.http.get(f"/{node}/whatsapp_business_profile", headers=bearer), node)
        check_beyond(await cloud.http.post(f"/{node}/register", json={"pin": "123456"}, headers=bearer), node)
        check_beyond(await cloud.http.get(f"/{waba}/message_templates", headers=bearer), waba)
        check_beyond(await cloud.http.post(f"/{waba}/subscribed_apps", headers=bearer), waba)
        check_beyond(await cloud.http.delete(f"/{waba}/message_templates?name=x", headers=bearer), waba)
        check_beyond(await cloud.http.get(f"/{app}", headers=bearer), app)
    assert coreapp.requested(core.AcceptMessage) == []


async def test_callbacks_belong_to_the_app_of_one_number(
    serve: Serve, database: Database, coreapp: FakeCoreapp
) -> None:
    served = await serve(cloud_api=True)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    headers = await second(served, database)
    check_beyond(await served.http.get(f"/{OTHER_APP}/subscriptions"), OTHER_APP)
    check_beyond(await served.http.post(f"/{APP}/subscriptions", json={}, headers=headers), APP)
    assert (await served.http.post(f"/{OTHER_WABA}/subscribed_apps", headers=headers)).status_code == 200
    assert {each.account for each in coreapp.requested(core.SettingsChanged)} == {SECOND}
    assert (await served.http.get(f"/{WABA}/subscribed_apps")).json() == {"data": []}
    listed = (await served.http.get(f"/{OTHER_WABA}/subscribed_apps", headers=headers)).json()["data"]
    assert [each["whatsapp_business_api_data"]["id"] for each in listed] == [OTHER_APP]


async def test_templates_and_files_belong_to_one_number(cloud: Cloud, database: Database) -> None:
    headers = await second(cloud.served, database)
    made = await cloud.http.post(f"/{WABA}/message_templates", json=TEMPLATE)
    assert made.status_code == 200, made.text
    listed = await cloud.http.get(f"/{OTHER_WABA}/message_templates", headers=headers)
    assert listed.json()["data"] == []
    check_beyond(await cloud.http.get(f"/{made.json()['id']}", headers=headers), made.json()["id"])
    file = {"file": ("a.txt", b"text", "text/plain")}
    form = {"messaging_product": "whatsapp"}
    kept = (await cloud.http.post(f"/{NUMBER}/media", files=file, data=form)).json()["id"]
    check_beyond(await cloud.http.get(f"/{kept}", headers=headers), kept)
    check_beyond(await cloud.http.delete(f"/{kept}", headers=headers), kept)
    wanted = {"type": "document", "document": {"id": kept}}
    refused = await cloud.http.post(f"/{OTHER_NUMBER}/messages", json=TEXT | wanted, headers=headers)
    assert error(refused)[:2] == (400, 100)
    url = (await cloud.http.get(f"/{kept}")).json()["url"]
    assert (await cloud.http.get(url)).content == b"text"
    assert error(await cloud.http.get(url, headers=headers))[0] == 404


async def test_a_number_that_another_process_adds_is_served_at_its_first_call(cloud: Cloud, database: Database) -> None:
    await add_number(database)
    check_beyond(await cloud.http.get(f"/{OTHER_NUMBER}"), OTHER_NUMBER)
    headers = await first_log_in(cloud.served)
    assert (await cloud.http.get(f"/{OTHER_NUMBER}", headers=headers)).status_code == 200


async def test_a_paused_number_is_unavailable(cloud: Cloud, database: Database) -> None:
    headers = await second(cloud.served, database)
    async with database.transaction() as connection:
        await numbers.set_state(connection, SECOND, numbers.PAUSED)
    await cloud.served.parts.numbers.poll()
    refused = await cloud.http.post(f"/{OTHER_NUMBER}/messages", json=TEXT, headers=headers)
    assert error(refused)[:2] == (500, 131016)
    assert refused.headers["Retry-After"] == "60"
    assert (await cloud.send()).status_code == 200


async def test_a_removed_number_has_no_ids(cloud: Cloud, database: Database) -> None:
    headers = await second(cloud.served, database)
    token = headers["Authorization"].removeprefix("Bearer ")
    requested = {"input_token": token}
    assert (await cloud.http.get("/debug_token", params=requested)).json()["data"]["app_id"] == OTHER_APP
    async with database.transaction() as connection:
        await numbers.set_state(connection, SECOND, numbers.REMOVING)
    await cloud.served.parts.numbers.poll()
    assert error(await cloud.http.get(f"/{OTHER_NUMBER}", headers=headers))[:2] == (401, 190)
    check_beyond(await cloud.http.get(f"/{OTHER_NUMBER}"), OTHER_NUMBER)
    assert (await cloud.http.get("/debug_token", params=requested)).json()["data"]["is_valid"] is False


async def test_a_host_takes_tokens_of_its_number_only(serve: Serve, database: Database, coreapp: FakeCoreapp) -> None:
    served = await serve(cloud_api=True, number_hosts={"wa1.example": SECOND})
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    headers = await second(served, database)
    here = {"Host": "wa1.example"}
    found = await served.http.get(f"/{OTHER_NUMBER}", headers=headers | here)
    assert found.status_code == 200, found.text
    assert error(await served.http.get(f"/{NUMBER}", headers=here))[:2] == (401, 190)


@pytest.mark.parametrize(("node", "account"), [(NUMBER, "15550000000"), (OTHER_NUMBER, SECOND)])
async def test_any_token_of_an_open_facade_acts_for_the_number_that_the_call_names(
    serve: Serve, database: Database, coreapp: FakeCoreapp, node: str, account: str
) -> None:
    served = await serve(cloud_api=True, cloud_open=True)
    await add_number(database)
    await served.parts.numbers.poll()
    await coreapp.until(lambda: coreapp.greetings > 0)
    headers = {"Authorization": "Bearer anything"}
    sent = await served.http.post(f"/{node}/messages", json=TEXT, headers=headers)
    assert sent.status_code == 200, sent.text
    assert [each.account for each in coreapp.requested(core.AcceptMessage)] == [account]
    async with database.transaction() as connection:
        await numbers.set_state(connection, SECOND, numbers.PAUSED)
    await served.parts.numbers.poll()
    again = await served.http.post(f"/{node}/messages", json=TEXT, headers=headers)
    assert again.status_code == (200 if node == NUMBER else 500)


async def test_each_number_has_its_own_rate_limit(serve: Serve, database: Database, coreapp: FakeCoreapp) -> None:
    served = await serve(cloud_api=True, messages_rate=0.001, messages_burst=2)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    headers = await second(served, database)
    sent = [await served.http.post(f"/{NUMBER}/messages", json=TEXT) for _ in range(3)]
    assert [each.status_code for each in sent] == [200, 200, 400]
    assert error(sent[-1])[1] == 130429
    sent = [await served.http.post(f"/{OTHER_NUMBER}/messages", json=TEXT, headers=headers) for _ in range(3)]
    assert [each.status_code for each in sent] == [200, 200, 400]
