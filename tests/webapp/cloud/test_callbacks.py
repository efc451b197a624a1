"""Callbacks of webhooks are verified, stored sealed and shown; Coreapps are notified of each change."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from tests.web_server import serving
from tests.webapp.cloud.conftest import APP, NUMBER, WABA, Cloud, error
from tests.webapp.conftest import PASSWORD, basic
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import cloud_urls
from tidings.storage.business import cloud_callbacks
from tidings.storage.database import Database
from tidings.wire import core

A, W, P = f"/v25.0/{APP}", f"/v25.0/{WABA}", f"/v25.0/{NUMBER}"
OBJECT = "whatsapp_business_account"
SUCCESS = '{"success":true}'


@dataclasses.dataclass
class Receiver:
    """Receiver that responds to verification requests with the challenge, if their token is `open sesame`."""

    url: str = ""
    verifications: list[dict[str, str]] = dataclasses.field(default_factory=list)
    others: asyncio.Barrier | None = None  # for verifications that wait for each other

    async def verify(self, request: web.Request) -> web.Response:
        self.verifications.append(dict(request.query))
        if request.query.get("hub.verify_token") != "open sesame":
            return web.Response(status=403)
        if self.others is not None:
            await self.others.wait()
        return web.Response(text=request.query["hub.challenge"])

    async def echo(self, request: web.Request) -> web.Response:
        return web.Response(text="hello")


@contextlib.asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    receiver, app = Receiver(), web.Application()
    app.router.add_get("/hook", receiver.verify)
    app.router.add_get("/echo", receiver.echo)
    async with serving(app) as url:
        receiver.url = url
        yield receiver


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


def subscription(url: str, **changed: object) -> dict[str, object]:
    return {"object": OBJECT, "callback_url": url, "verify_token": "open sesame", "fields": "messages", **changed}


async def test_an_app_s_callback_is_verified_and_shown(
    cloud: Cloud, receiver: Receiver, coreapp: FakeCoreapp, database: Database
) -> None:
    url = f"{receiver.url}/hook?own=1"
    body = subscription(url, fields="messages, message_template_status_update", include_values=True)
    assert (await cloud.http.get(f"{A}/subscriptions")).text == '{"data":[]}'
    assert (await cloud.http.post(f"{A}/subscriptions", data=body)).text == SUCCESS
    (query,) = receiver.verifications
    challenge = query.pop("hub.challenge")
    assert challenge.isascii()
    assert challenge.isdigit()
    assert query == {"own": "1", "hub.mode": "subscribe", "hub.verify_token": "open sesame"}
    assert (await cloud.http.get(f"{A}/subscriptions")).json() == {
        "data": [
            {
                "object": OBJECT,
                "callback_url": url,
                "active": True,
                "fields": [
                    {"name": "message_template_status_update", "version": "v25.0"},
                    {"name": "messages", "version": "v25.0"},
                ],
            }
        ]
    }
    assert len(coreapp.requested(core.SettingsChanged)) == 1
    # The URLs of files in webhooks name the host at which the callback was set.
    async with database.reading() as connection:
        (row,) = await cloud_callbacks.list_of(connection, [APP])
    kept = cloud_urls.opened(SecretSealer(b"s" * 32), row)
    assert kept is not None
    assert kept.api_url == "http://127.0.0.1:0"
    found = (await cloud.http.get(f"{P}?fields=webhook_configuration")).json()
    assert found == {"webhook_configuration": {"application": url}, "id": NUMBER}


async def test_fields_that_are_never_posted_can_be_subscribed_to(cloud: Cloud, receiver: Receiver) -> None:
    never = (
        "business_username_update,calls,flows,group_lifecycle_update,group_participants_update,group_settings_update,"
        "group_status_update,history,partner_solutions,payment_configuration_update,smb_app_state_sync,"
        "smb_message_echoes"
    )
    path = f"/v25.0/{APP}/subscriptions"
    response = await cloud.http.post(path, json=subscription(f"{receiver.url}/hook", fields=f"messages,{never}"))
    assert response.text == SUCCESS
    (found,) = (await cloud.http.get(path)).json()["data"]
    assert [field["name"] for field in found["fields"]] == sorted([*never.split(","), "messages"])


async def test_fields_are_added_and_removed_without_another_verification(cloud: Cloud, receiver: Receiver) -> None:
    path = f"{A}/subscriptions"
    await cloud.http.post(path, json=subscription(f"{receiver.url}/hook"))
    more = {"object": OBJECT, "fields": ["account_update"]}
    assert (await cloud.http.post(path, json=more)).text == SUCCESS

    async def fields() -> list[str]:
        (found,) = (await cloud.http.get(path)).json()["data"]
        return [field["name"] for field in found["fields"]]

    assert await fields() == ["account_update", "messages"]
    assert (await cloud.http.delete(f"{path}?object={OBJECT}&fields=account_update")).text == SUCCESS
    assert await fields() == ["messages"]
    assert len(receiver.verifications) == 1
    assert (await cloud.http.delete(f"{path}?object={OBJECT}")).text == SUCCESS
    assert (await cloud.http.get(path)).text == '{"data":[]}'


@pytest.mark.parametrize(
    ("changed", "code", "message"),
    [
        ({"verify_token": "wrong"}, 2200, "HTTP Status Code = 403"),
        ({"callback_url": "{url}/echo"}, 2200, "does not match the challenge"),
        ({"callback_url": "{url}/nothing"}, 2200, "HTTP Status Code = 404"),
        ({"callback_url": "http://10.0.0.1/hook"}, 2200, "10.0.0.1"),
        ({"callback_url": "ftp://example.com/hook"}, 100, "Invalid parameter"),
        ({"callback_url": "http://example.com/#x"}, 100, "Invalid parameter"),
        ({"callback_url": "http://example.com/" + "x" * 2048}, 100, "Invalid parameter"),
        ({"callback_url": None}, 100, "The parameter callback_url is required."),
        ({"verify_token": None}, 100, "The parameter verify_token is required."),
        ({"object": None}, 100, "The parameter object is required."),
        ({"object": "page"}, 100, "Param object must be one of"),
        ({"fields": "messages,nothing"}, 100, "Param fields must be one of"),
    ],
)
async def test_a_wrong_callback_is_refused_and_the_earlier_one_stays(
    cloud: Cloud, receiver: Receiver, changed: dict[str, str | None], code: int, message: str
) -> None:
    path = f"{A}/subscriptions"
    if changed.get("callback_url", "") is not None:
        await cloud.http.post(path, json=subscription(f"{receiver.url}/hook"))
    given = {
        name: value.format(url=receiver.url) if isinstance(value, str) else value for name, value in changed.items()
    }
    before = (await cloud.http.get(path)).text
    refused = await cloud.http.post(path, json=subscription(f"{receiver.url}/hook", **given))
    found = error(refused)
    assert found[:2] == (400, code)
    assert message in found[2]
    assert (await cloud.http.get(path)).text == before


async def test_a_waba_s_callback_overrides_until_the_app_is_subscribed_without_one(
    cloud: Cloud, receiver: Receiver
) -> None:
    override = {"override_callback_uri": f"{receiver.url}/hook", "verify_token": "open sesame"}
    assert (await cloud.http.post(f"{W}/subscribed_apps", json=override)).text == SUCCESS
    app = {"link": "", "name": "Tidings", "id": APP}
    found = (await cloud.http.get(f"{W}/subscribed_apps")).json()
    assert found == {
        "data": [{"whatsapp_business_api_data": app, "override_callback_uri": override["override_callback_uri"]}]
    }
    assert (await cloud.http.post(f"{W}/subscribed_apps")).text == SUCCESS
    found = (await cloud.http.get(f"{W}/subscribed_apps")).json()
    assert found == {"data": [{"whatsapp_business_api_data": app}]}


async def test_a_refused_override_subscribes_nothing(cloud: Cloud, receiver: Receiver) -> None:
    override = {"override_callback_uri": f"{receiver.url}/hook", "verify_token": "wrong"}
    assert error(await cloud.http.post(f"{W}/subscribed_apps", json=override))[:2] == (400, 2200)
    assert (await cloud.http.get(f"{W}/subscribed_apps")).text == '{"data":[]}'
    long = {**override, "override_callback_uri": f"{receiver.url}/hook?{'x' * 200}"}
    assert error(await cloud.http.post(f"{W}/subscribed_apps", json=long))[:2] == (400, 100)


async def test_a_number_has_a_callback_of_its_own(cloud: Cloud, receiver: Receiver, database: Database) -> None:
    url = f"{receiver.url}/hook"
    configuration = {"override_callback_uri": url, "verify_token": "open sesame"}
    assert (await cloud.http.post(P, json={"webhook_configuration": configuration})).text == SUCCESS
    found = (await cloud.http.get(f"{P}?fields=webhook_configuration")).json()
    assert found["webhook_configuration"] == {"phone_number": url}
    async with database.reading() as connection:
        (row,) = await cloud_callbacks.list_of(connection, [NUMBER])
    assert url.encode() not in row.content
    empty = {"webhook_configuration": {"override_callback_uri": ""}}
    assert (await cloud.http.post(P, json=empty)).text == SUCCESS
    found = (await cloud.http.get(f"{P}?fields=webhook_configuration")).json()
    assert found["webhook_configuration"] == {}
    assert error(await cloud.http.post(P, json={"webhook_configuration": "x"}))[:2] == (400, 100)


async def test_callbacks_need_an_administrator_and_an_own_app(cloud: Cloud, receiver: Receiver) -> None:
    other = f"/v25.0/3{'0' * 15}/subscriptions"
    assert error(await cloud.http.post(other, json=subscription(f"{receiver.url}/hook")))[:2] == (400, 100)
    assert not receiver.verifications


async def test_concurrent_subscriptions_keep_each_other_s_fields(cloud: Cloud, receiver: Receiver) -> None:
    receiver.others = asyncio.Barrier(2)
    url = f"{receiver.url}/hook"

    async def subscribe(name: str) -> None:
        response = await cloud.http.post(f"{A}/subscriptions", data=subscription(url, fields=name))
        assert response.text == SUCCESS

    await asyncio.gather(subscribe("messages"), subscribe("account_update"))
    (found,) = (await cloud.http.get(f"{A}/subscriptions")).json()["data"]
    assert {field["name"] for field in found["fields"]} == {"messages", "account_update"}


async def test_only_administrators_see_urls_of_callbacks(cloud: Cloud, receiver: Receiver) -> None:
    url = f"{receiver.url}/hook?key=s3cret"
    assert (await cloud.http.post(f"{A}/subscriptions", data=subscription(url))).text == SUCCESS
    override = {"override_callback_uri": url, "verify_token": "open sesame"}
    assert (await cloud.http.post(f"{W}/subscribed_apps", data=override)).text == SUCCESS
    assert (await cloud.http.post("/v1/users", json={"username": "viewer", "password": PASSWORD})).status_code == 201
    login = await cloud.http.post("/v1/users/login", headers=basic("viewer", PASSWORD))
    viewer = {"Authorization": f"Bearer {login.json()['users'][0]['token']}"}
    for path in (P, f"{W}/phone_numbers?fields=webhook_configuration", f"{W}/subscribed_apps"):
        assert "s3cret" in (await cloud.http.get(path)).text
        seen = await cloud.http.get(path, headers=viewer)
        assert seen.status_code == 200
        assert "s3cret" not in seen.text


async def test_a_wrong_pin_leaves_the_callback_unchanged(cloud: Cloud, receiver: Receiver) -> None:
    override = {"override_callback_uri": f"{receiver.url}/hook", "verify_token": "open sesame"}
    response = await cloud.http.post(P, json={"pin": "12", "webhook_configuration": override})
    assert response.status_code == 400
    assert receiver.verifications == []
    assert "phone_number" not in (await cloud.http.get(P)).json()["webhook_configuration"]
