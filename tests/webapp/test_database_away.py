"""Every route while the database hangs or refuses connections: 503 with `Retry-After` within 5 s, and no change
afterwards."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from harness import lateness
from harness.mariadb import MariaDB
from harness.proxy import Proxy
from tests.media_samples import PNG
from tests.webapp import backups
from tests.webapp.cloud.conftest import APP, NUMBER, WABA
from tests.webapp.cloud.test_callbacks import Receiver, receiving, subscription
from tests.webapp.conftest import PASSWORD, Serve, Served, basic, body
from tests.webapp.fake_coreapp import GROUP, FakeCoreapp
from tidings.installation.settings import DatabaseSettings
from tidings.storage.database import Database
from tidings.wire.cloud.identity import ObjectKind
from webapp import services
from webapp.api.cloud.endpoints import ENDPOINTS, MEDIA, UPLOAD

# Maximum seconds until a response.
RESPONSE_SECONDS = 5.0
# Rows of uploads are stored in batches, so that the second of two uploads waits for the first one's batch and its own.
BATCHED = {"POST /v1/media": 2, "POST number media": 2}
# Number of a user's connections: as many as there are routes, so that each meets the database itself.
CONNECTIONS = 150
USER = "annette"
Options = dict[str, Any]

# Routes that need no database: they respond from memory, or through a Coreapp.
WITHOUT = frozenset(
    {
        "POST /v1/messages",
        "PUT /v1/messages/{message_id:path}",
        "POST /v1/contacts",
        "GET /v1/contacts/{wa_id}/identity",
        "PUT /v1/contacts/{wa_id}/identity",
        "GET /v1/groups",
        "POST /v1/groups",
        "GET /v1/groups/{group_id}",
        "PUT /v1/groups/{group_id}",
        "PATCH /v1/groups/{group_id}/admins",
        "DELETE /v1/groups/{group_id}/admins",
        "DELETE /v1/groups/{group_id}/participants",
        "GET /v1/groups/{group_id}/icon",
        "POST /v1/groups/{group_id}/icon",
        "DELETE /v1/groups/{group_id}/icon",
        "GET /v1/groups/{group_id}/invite",
        "DELETE /v1/groups/{group_id}/invite",
        "POST /v1/groups/{group_id}/leave",
        "PUT /v1/services/message/gc",
        "PUT /v1/services/media/gc",
        "GET /v1/stats",
        "GET /v1/stats/app",
        "GET /v1/stats/app/internal",
        "GET /v1/health",
        "GET /v1/metrics",
        "GET /metrics",
        "GET /health/live",
        "GET /",
        "GET /openapi.json",
        "GET /cloud/openapi.json",
        "GET /docs",
        "GET /docs/{name}",
        "POST number messages",
        "GET waba",
        "GET app",
        "GET business owned_whatsapp_business_accounts",
        "GET business client_whatsapp_business_accounts",
        "GET debug_token",
        "GET me",
        "GET me businesses",
    }
)
# Served from memory while the password has been checked shortly before.
LOGIN = "POST /v1/users/login"
READINESS = "GET /health/ready"
# No number sends through the real Cloud API here: the secret is unknown, which is known without the database.
CALLBACKS = "/cloud/callbacks/{secret}"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """Request to one route that succeeds while the database is there."""

    name: str  # method and route, or in the Cloud API method, kind of object and edge
    method: str
    path: str
    options: Options


@pytest.fixture
def database_engine() -> str:
    return "mariadb"


@pytest.fixture
async def way(mariadb: MariaDB) -> AsyncIterator[Proxy]:
    """Way from the Webapp to the database server."""
    made = Proxy("127.0.0.1", mariadb.port)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def database(
    database_factory: Callable[[str], Awaitable[Database]], mariadb: MariaDB, way: Proxy
) -> AsyncIterator[Database]:
    """Database opened as a Webapp does, through the proxy."""
    url = (await database_factory("business")).settings.url.replace(f":{mariadb.port}/", f":{way.address[1]}/")
    seconds = services.DATABASE_SECONDS
    settings = DatabaseSettings(url, pool_size=CONNECTIONS)
    made = Database(settings, "business", deadline=seconds, max_retry_seconds=seconds)
    yield made
    await made.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as found:
        yield found


async def v1_calls(api: Served) -> list[Call]:
    """Return a call of each route of v1, after creating what they name."""
    http = api.http
    await backups.fill(api)
    data = await backups.backup(api)
    await http.post("/v1/users", json={"username": USER, "password": PASSWORD})
    image: Options = {"content": PNG, "headers": {"Content-Type": "image/png"}}
    media_id = (await http.post("/v1/media", **image)).json()["media"][0]["id"]
    pack = (await http.get("/v1/stickerpacks")).json()["stickerpacks"][0]["id"]
    names = {"username": USER, "media_id": media_id, "id": pack, "group_id": GROUP, "name": "x", "index": "0"}
    raw: Mapping[str, Options] = {
        "POST /v1/users/login": {"headers": basic(USER, PASSWORD)},
        "POST /v1/media": image,
        "POST /v1/settings/profile/photo": image,
        "POST /v1/groups/{group_id}/icon": image,
        "POST /v1/certificates/external": {"content": backups.BUNDLE},
        "POST /v1/certificates/webhooks/ca": {"content": backups.AUTHORITY.pem},
        "POST /v1/settings/restore": {"json": {"password": backups.PASSWORD, "data": data}},
        "POST /v1/settings/business/whatsapp_business_encryption": {"json": body("business_encryption")["public_key"]},
        "POST /v1/messages": {"json": body("message_text")},
        "PUT /v1/messages/{message_id:path}": {"json": {"status": "read"}},
    }
    document = (await http.get("/openapi.json")).json()["paths"]
    found = []
    for route in api.parts.app.router.routes:
        assert isinstance(route, APIRoute)
        for method in sorted(set(route.methods or ()) - {"HEAD"}):
            name = f"{method} {route.path}"
            described = document.get(route.path, {}).get(method.lower(), {})
            path = route.path.replace("/docs/{name}", "/docs/start.js").replace("{message_id:path}", "gBEG1")
            for parameter in described.get("parameters", ()):
                if parameter["in"] == "path":
                    value = names.get(parameter["name"], parameter["example"])
                    path = path.replace(f"{{{parameter['name']}}}", value)
            media = described.get("requestBody", {}).get("content", {}).get("application/json", {})
            options = raw.get(name) or ({"json": media["example"]} if "example" in media else {})
            found.append(Call(name, method, path, options))
    assert len(found) > 85
    return found


async def cloud_calls(api: Served, url: str) -> list[Call]:
    """Return a call of each endpoint of the Cloud API, after creating what they name.

    url: of a callback that can be verified
    """
    http, product = api.http, {"messaging_product": "whatsapp"}
    template = {
        "name": "greeting",
        "language": "en_US",
        "category": "UTILITY",
        "components": [{"type": "BODY", "text": "Hello"}],
    }
    template_id = (await http.post(f"/{WABA}/message_templates", json=template)).json()["id"]
    file: Options = {"data": product, "files": {"file": ("a.png", PNG, "image/png")}}
    media_id = (await http.post(f"/{NUMBER}/media", **file)).json()["id"]
    link = httpx.URL((await http.get(f"/{media_id}")).json()["url"])
    assert (await http.post(f"/{APP}/subscriptions", data=subscription(url))).status_code == 200
    business = (await http.get("/me/businesses")).json()["data"][0]["id"]
    announced = {"file_name": "a.png", "file_length": str(len(PNG)), "file_type": "image/png"}
    upload = (await http.post(f"/{APP}/uploads", params=announced)).json()["id"]
    code = (await http.post(f"/{NUMBER}/message_qrdls", json={"prefilled_message": "Hello"})).json()["code"]
    nodes: Mapping[str, str] = {
        ObjectKind.NUMBER: NUMBER,
        ObjectKind.WABA: WABA,
        ObjectKind.APP: APP,
        ObjectKind.BUSINESS: business,
        ObjectKind.TEMPLATE: template_id,
        MEDIA: media_id,
        UPLOAD: upload,
    }
    text = {"to": "15550110001", "type": "text", "text": {"body": "Hello"}}
    blocked = {"json": {**product, "block_users": [{"user": "15550110001"}]}}
    bodies: Mapping[tuple[str, str, str], Options] = {
        (ObjectKind.NUMBER, "messages", "POST"): {"json": product | text},
        (ObjectKind.NUMBER, "media", "POST"): file,
        (ObjectKind.NUMBER, "", "POST"): {"json": {"pin": "123456"}},
        (ObjectKind.NUMBER, "request_code", "POST"): {"json": {"code_method": "SMS", "language": "en_US"}},
        (ObjectKind.NUMBER, "verify_code", "POST"): {"json": {"code": "123456"}},
        (ObjectKind.NUMBER, "register", "POST"): {"json": {**product, "pin": "123456"}},
        (ObjectKind.NUMBER, "whatsapp_business_profile", "POST"): {"json": {**product, "about": "us"}},
        (ObjectKind.NUMBER, "block_users", "POST"): blocked,
        (ObjectKind.NUMBER, "block_users", "DELETE"): blocked,
        (ObjectKind.NUMBER, "settings", "POST"): {
            "json": {"user_identity_change": {"enable_identity_key_check": True}},
        },
        (ObjectKind.NUMBER, "conversational_automation", "POST"): {"json": {"prompts": ["Plan a vacation"]}},
        (ObjectKind.NUMBER, "whatsapp_commerce_settings", "POST"): {"json": {"is_cart_enabled": True}},
        (ObjectKind.NUMBER, "whatsapp_business_encryption", "POST"): {
            "data": body("business_encryption")["public_key"]
        },
        (ObjectKind.NUMBER, "message_qrdls", "POST"): {"json": {"prefilled_message": "Hello"}},
        (ObjectKind.APP, "uploads", "POST"): {"params": announced},
        (UPLOAD, "", "POST"): {"content": PNG, "headers": {"file_offset": "0"}},
        (ObjectKind.WABA, "message_templates", "POST"): {"json": {**template, "name": "other"}},
        (ObjectKind.WABA, "message_templates", "DELETE"): {"params": {"name": "greeting"}},
        (ObjectKind.TEMPLATE, "", "POST"): {"json": {"components": template["components"]}},
        (ObjectKind.APP, "subscriptions", "POST"): {"data": subscription(url)},
        (ObjectKind.APP, "subscriptions", "DELETE"): {"params": {"object": "whatsapp_business_account"}},
        ("debug_token", "", "GET"): {"params": {"input_token": http.headers["Authorization"].split()[1]}},
        ("whatsapp_business", "attachments", "GET"): {"params": dict(link.params)},
    }
    found = []
    for key in ENDPOINTS:
        kind, edge, method = key
        path = f"/v25.0/{nodes.get(kind, kind)}" + (f"/{edge.format(code=code)}" if edge else "")
        found.append(Call(f"{method} {kind} {edge}".rstrip(), method, path, bodies.get(key, {})))
    assert len(found) >= 30
    return found


async def timed(api: Served, call: Call) -> tuple[Call, httpx.Response, float]:
    """Carry out a call. Returns its response, and the seconds that it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    response = await api.http.request(call.method, call.path, **call.options)
    return call, response, loop.time() - started


def is_refused(response: httpx.Response) -> bool:
    """Return whether a response means that nothing was done: 503, or the Cloud API's 500 with 131016."""
    found = response.json()
    if "error" in found:
        refused = response.status_code == 500 and found["error"]["code"] == 131016
    else:
        refused = response.status_code == 503 and found["errors"][0]["code"] in (1011, 1016)
    return refused and bool(response.headers.get("Retry-After"))


@pytest.mark.parametrize("fault", ["hangs", "refuses connections"])
async def test_every_route_responds_with_503_within_5_seconds(
    serve: Serve, coreapp: FakeCoreapp, way: Proxy, receiver: Receiver, fault: str, tmp_path: Path
) -> None:
    api = await serve(media_dir=tmp_path / "media", cloud_api=True)
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    calls = [*await v1_calls(api), *await cloud_calls(api, f"{receiver.url}/hook")]
    if fault == "hangs":
        way.shut()
    else:
        await way.stop()
    async with lateness.measured() as late:
        outcomes = await asyncio.gather(*(timed(api, call) for call in calls))
    wrong = []
    for call, response, seconds in outcomes:
        if call.name == READINESS:
            is_right = response.status_code == 503
        elif call.name.endswith(CALLBACKS):
            is_right = response.status_code == 404
        elif call.name == LOGIN:
            is_right = response.status_code == 200 or is_refused(response)
        else:
            is_right = response.status_code < 300 if call.name in WITHOUT else is_refused(response)
        if not is_right or seconds >= RESPONSE_SECONDS * BATCHED.get(call.name, 1) + late.seconds:
            wrong.append(f"{call.name}: {response.status_code} after {seconds:.1f} s: {response.text[:150]}")
    if fault == "hangs":
        way.open()
    else:
        await way.start()
    assert not wrong, "\n".join(wrong)
    assert {call.name for call in calls} > WITHOUT
    async with asyncio.timeout(RESPONSE_SECONDS):
        while (await api.http.get("/v1/health")).json()["health"] != {"gateway_status": "connected"}:
            pass
    assert (await api.http.get("/v1/users")).status_code == 200
    assert json.loads((await api.http.get(f"/{NUMBER}")).text)["id"] == NUMBER
