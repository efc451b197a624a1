"""The Cloud API with a key: paths without a version and without the number."""

from __future__ import annotations

import pytest

from tests.webapp.cloud.conftest import NUMBER
from tests.webapp.conftest import Serve, Served, code
from tests.webapp.d360.test_keys import key_of, keyed
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.database import Database

TEXT = {"messaging_product": "whatsapp", "to": "15550110001", "type": "text", "text": {"body": "Hello"}}


@pytest.fixture
async def cloud(serve: Serve, coreapp: FakeCoreapp) -> Served:
    served = await serve(cloud_api=True)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return served


async def test_messages_media_and_templates_need_no_number(cloud: Served, database: Database) -> None:
    client = keyed(cloud, await key_of(cloud, database))
    sent = await client.post("/messages", json=TEXT)
    assert sent.status_code == 200, sent.text
    assert sent.json()["messaging_product"] == "whatsapp"
    assert sent.headers.get_list("cache-control") == ["private, no-cache, no-store, must-revalidate"]
    uploaded = await client.post(
        "/media", data={"messaging_product": "whatsapp"}, files={"file": ("a.txt", b"text", "text/plain")}
    )
    assert uploaded.status_code == 200, uploaded.text
    found = (await client.get(f"/{uploaded.json()['id']}")).json()
    content = await client.get(found["url"])
    assert (content.status_code, content.content) == (200, b"text")
    assert (await client.delete(f"/{uploaded.json()['id']}")).json() == {"success": True}
    assert (await client.get("/message_templates")).json()["data"] == []
    profile = await client.get("/whatsapp_business_profile")
    assert profile.status_code == 200
    # With the number as in the Cloud API.
    assert (await client.post(f"/v25.0/{NUMBER}/messages", json=TEXT)).status_code == 200


async def test_errors_are_those_of_the_cloud_api_except_for_a_wrong_key(cloud: Served, database: Database) -> None:
    client = keyed(cloud, await key_of(cloud, database))
    wrong = await client.post("/messages", json={**TEXT, "to": ""})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["type"] == "OAuthException"
    refused = await keyed(cloud, {"D360-API-KEY": "wrong"}).post("/messages", json=TEXT)
    assert refused.json()["meta"]["developer_message"] == "Invalid api key"
    # v1 has no such path, with and without the key.
    assert code(await cloud.http.post("/messages", json=TEXT)) == (404, 1006)
    assert code(await client.get("/nothing")) == (404, 1006)


async def test_where_the_cloud_api_is_off_its_paths_do_not_exist(api: Served, database: Database) -> None:
    client = keyed(api, await key_of(api, database))
    assert code(await client.post("/messages", json=TEXT)) == (404, 1006)
