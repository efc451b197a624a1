"""`message_send_ttl_seconds`: its ranges, where it is shown, and the time to live that it gives a message."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pymysql
import pytest
import sqlalchemy as sa

from tests.webapp.cloud.conftest import WABA, Cloud, error
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import template_ttls, templates
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Connection, Database
from tidings.wire import core
from tidings.wire.cloud.identity import template_id

PATH = f"/v25.0/{WABA}/message_templates"
TEXT = [{"type": "BODY", "text": "Hello"}]
CODE = [{"type": "BODY"}, {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE"}]}]
CODE_PARAMETERS = [
    {"type": "body", "parameters": [{"type": "text", "text": "123456"}]},
    {"type": "button", "sub_type": "url", "index": "0", "parameters": [{"type": "text", "text": "123456"}]},
]
NAME = "message_send_ttl_seconds"
ACCOUNT = "15550000000"


async def create(cloud: Cloud, category: str, **fields: Any) -> httpx.Response:
    components = CODE if category == "AUTHENTICATION" else TEXT
    definition = {"name": "order", "language": "en_US", "category": category, "components": components, **fields}
    return await cloud.http.post(PATH, json=definition)


async def sent_life(cloud: Cloud, coreapp: FakeCoreapp, category: str, **fields: Any) -> int:
    """Send the template, and return the seconds that the message lives; 0 for as long as other messages."""
    template: dict[str, Any] = {"name": "order", "language": {"code": "en_US"}}
    if category == "AUTHENTICATION":
        template["components"] = CODE_PARAMETERS
    response = await cloud.send(type="template", text=..., template=template, **fields)
    assert response.is_success, response.text
    return coreapp.requested(core.AcceptMessage)[-1].ttl


@pytest.mark.parametrize(
    ("category", "given", "seconds"),
    [
        ("AUTHENTICATION", {}, 600),
        ("AUTHENTICATION", {NAME: 30}, 30),
        ("AUTHENTICATION", {NAME: "900"}, 900),
        ("AUTHENTICATION", {NAME: -1}, 0),
        ("UTILITY", {}, 0),
        ("UTILITY", {NAME: 43_200}, 43_200),
        ("UTILITY", {NAME: -1}, 0),
        ("MARKETING", {NAME: 43_200}, 0),
    ],
)
async def test_a_message_lives_as_long_as_its_template_says(
    cloud: Cloud, coreapp: FakeCoreapp, category: str, given: dict[str, Any], seconds: int
) -> None:
    assert (await create(cloud, category, **given)).is_success
    assert await sent_life(cloud, coreapp, category) == seconds
    # `ttl` is a field of v1.
    assert await sent_life(cloud, coreapp, category, ttl=77) == seconds


@pytest.mark.parametrize(
    ("category", "given"),
    [
        ("AUTHENTICATION", 29),
        ("AUTHENTICATION", 901),
        ("UTILITY", 43_201),
        ("MARKETING", 43_199),
        ("MARKETING", 2_592_001),
        ("UTILITY", 0),
        ("UTILITY", -2),
        ("UTILITY", "soon"),
        ("UTILITY", True),
        ("UTILITY", [60]),
    ],
)
async def test_a_value_outside_the_range_of_its_category_is_refused(cloud: Cloud, category: str, given: Any) -> None:
    assert error(await create(cloud, category, **{NAME: given}))[:2] == (400, 100)
    assert (await cloud.http.get(PATH)).json() == {"data": []}


async def test_the_value_is_shown_changed_and_gone_with_its_template(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    template_id = (await create(cloud, "UTILITY", **{NAME: 60})).json()["id"]
    path = f"/{template_id}?fields={NAME}"
    assert (await cloud.http.get(path)).json() == {NAME: 60, "id": template_id}
    listed = (await cloud.http.get(PATH, params={"fields": NAME})).json()["data"]
    assert listed == [{NAME: 60, "id": template_id}]
    assert await sent_life(cloud, coreapp, "UTILITY") == 60
    assert (await cloud.http.post(f"/{template_id}", json={NAME: 90})).text == '{"success":true}'
    assert (await cloud.http.get(path)).json() == {NAME: 90, "id": template_id}
    assert await sent_life(cloud, coreapp, "UTILITY") == 90
    assert error(await cloud.http.post(f"/{template_id}", json={NAME: 29}))[:2] == (400, 100)
    assert (await cloud.http.delete(PATH, params={"name": "order"})).is_success
    assert (await create(cloud, "UTILITY")).json()["id"] == template_id
    assert (await cloud.http.get(path)).json() == {"id": template_id}
    assert await sent_life(cloud, coreapp, "UTILITY") == 0


async def test_messages_of_v1_have_their_own_time_to_live(cloud: Cloud, coreapp: FakeCoreapp) -> None:
    assert (await create(cloud, "UTILITY", **{NAME: 60})).is_success
    template = {"name": "order", "language": {"policy": "deterministic", "code": "en_US"}}
    body = {"to": "15550110001", "type": "template", "template": template}
    assert (await cloud.http.post("/v1/messages", json=body)).is_success
    assert coreapp.requested(core.AcceptMessage)[-1].ttl == 0


async def list_ttls(database: Database) -> Mapping[str, int]:
    async with database.reading() as connection:
        return await template_ttls.list_ttls(connection, ACCOUNT)


@pytest.mark.parametrize("over_v1", [False, True])
async def test_a_deleted_template_leaves_no_value(cloud: Cloud, database: Database, *, over_v1: bool) -> None:
    kept = (await create(cloud, "UTILITY", name="kept", **{NAME: 90})).json()["id"]
    assert (await create(cloud, "UTILITY", **{NAME: 60})).is_success
    assert (await create(cloud, "UTILITY", language="de", **{NAME: 60})).is_success
    if over_v1:
        assert (await cloud.http.delete("/v1/configs/templates/order")).is_success
    else:
        assert (await cloud.http.delete(PATH, params={"name": "order"})).is_success
    assert await list_ttls(database) == {kept: 90}


async def test_an_imported_template_has_no_value_of_a_deleted_one(
    cloud: Cloud, coreapp: FakeCoreapp, database: Database
) -> None:
    assert (await create(cloud, "UTILITY", name="kept", **{NAME: 90})).is_success
    assert (await create(cloud, "UTILITY", **{NAME: 60})).is_success
    before = await list_ttls(database)
    # A Webapp of an earlier release, or a command, has deleted it.
    async with database.transaction() as connection:
        await templates.delete_templates(connection, ACCOUNT, "order")
    assert await list_ttls(database) == before
    data = [
        {"name": name, "language": "en_US", "category": "UTILITY", "components": [{"type": "BODY", "text": "Hi"}]}
        for name in ("kept", "order")
    ]
    response = await cloud.http.post("/v1/configs/templates/import", json={"data": data, "replace": True})
    assert response.is_success, response.text
    assert list((await list_ttls(database)).values()) == [90]
    assert await sent_life(cloud, coreapp, "UTILITY") == 0


@pytest.mark.parametrize(
    ("category", "given", "moved", "shown", "lived"),
    [
        ("UTILITY", 43_200, "AUTHENTICATION", 900, 900),
        ("UTILITY", 60, "AUTHENTICATION", 60, 60),
        ("UTILITY", -1, "AUTHENTICATION", -1, 0),
        ("MARKETING", 2_592_000, "UTILITY", 43_200, 43_200),
        ("UTILITY", 60, "MARKETING", 43_200, 0),
    ],
)
async def test_a_value_is_limited_to_the_range_of_a_new_category(
    cloud: Cloud,
    coreapp: FakeCoreapp,
    database: Database,
    category: str,
    given: int,
    moved: str,
    shown: int,
    lived: int,
) -> None:
    made = (await create(cloud, category, **{NAME: given})).json()["id"]
    async with database.transaction() as connection:
        (stored,) = await templates.list_templates(connection, ACCOUNT)
        await templates.put_templates(connection, ACCOUNT, [templates.recategorised(stored, moved)])
    await cloud.served.parts.common.changes.run_once()
    assert (await cloud.http.get(f"/{made}?fields={NAME}")).json() == {NAME: shown, "id": made}
    assert await sent_life(cloud, coreapp, "UTILITY") == lived


async def test_the_value_is_that_of_the_namespace_whose_template_is_sent(
    cloud: Cloud, coreapp: FakeCoreapp, database: Database
) -> None:
    own = (await create(cloud, "UTILITY", **{NAME: 60})).json()["id"]
    # Sorts before the default namespace, which messages of the Cloud API use.
    other = TemplateRow(ACCOUNT, "order", "en_US", "0", "UTILITY", "APPROVED", TEXT, created_at=1)
    async with database.transaction() as connection:
        await templates.put_templates(connection, ACCOUNT, [other])
        await template_ttls.put(connection, ACCOUNT, template_id(ACCOUNT, "0", "order", "en_US"), 90)
    await cloud.served.parts.common.changes.run_once()
    assert (await list_ttls(database))[own] == 60
    assert await sent_life(cloud, coreapp, "UTILITY") == 60


async def test_a_new_value_is_stored_when_the_first_transaction_fails(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    template_id = (await create(cloud, "UTILITY", **{NAME: 60})).json()["id"]
    transaction, left = Database.transaction, [True]

    @contextlib.asynccontextmanager
    async def failing(self: Database, **options: Any) -> AsyncIterator[Connection]:
        async with transaction(self, **options) as connection:
            yield connection
            if left:
                # The transaction is rolled back.
                left.clear()
                raise sa.exc.OperationalError("UPDATE", {}, pymysql.err.OperationalError(2013, "Lost connection"))

    monkeypatch.setattr(Database, "transaction", failing)
    assert (await cloud.http.post(f"/{template_id}", json={NAME: 90})).text == '{"success":true}'
    assert not left
    shown = await cloud.http.get(f"/{template_id}?fields={NAME}")
    assert shown.json() == {NAME: 90, "id": template_id}
