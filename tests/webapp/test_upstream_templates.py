"""`/v1/configs/templates` of a number that sends through the real Cloud API: its Coreapp changes the WABA."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

from coreapp.upstream.checks import UpstreamChecks
from tests.webapp.cloud.conftest import NUMBER as NUMBER_ID
from tests.webapp.cloud.conftest import WABA, error
from tests.webapp.conftest import Serve, Served, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.aio.clock import SystemClock
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import upstream_credentials
from tidings.keys.upstream_credentials import UpstreamCredentials
from tidings.storage.business import numbers, templates, upstreams
from tidings.storage.business.templates import TemplateRow
from tidings.storage.business.upstreams import Upstream
from tidings.storage.database import Connection, Database
from tidings.wire import codes, core

NUMBER, NAMESPACE = "15550000000", "9d1f930f_bea0_4e35"
PATH = "/v1/configs/templates"
BODY = [{"type": "BODY", "text": "Hello {{1}}", "example": {"body_text": [["Ann"]]}}]
URL_BUTTON = {"type": "URL", "text": "Track", "url": "https://example.com/{{1}}", "example": ["https://example.com/7"]}
ORDER = {"name": "order", "language": "en_US", "category": "UTILITY", "components": BODY}
OTP = [
    {"type": "BODY", "text": "{{1}} is your verification code."},
    {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE", "text": "Copy code"}]},
]


def row(**changes: Any) -> TemplateRow:
    """Return a template as the Coreapp has mirrored it."""
    stored = TemplateRow(NUMBER, "order", "en_US", NAMESPACE, "UTILITY", "APPROVED", BODY, 1)
    return dataclasses.replace(stored, **changes)


async def put(database: Database, *rows: TemplateRow) -> None:
    """Store templates as the Coreapp does."""
    async with database.transaction() as connection:
        await templates.put_templates(connection, NUMBER, rows)


@pytest.fixture
async def api(serve: Serve, coreapp: FakeCoreapp, database: Database) -> Served:
    """Webapp of a number that sends through the Cloud API, with a Coreapp that makes every change."""
    coreapp.respond(core.ChangeTemplate, lambda request: core.Done(request.n))
    sealed = upstream_credentials.sealed(SecretSealer(b"s" * 32), NUMBER, UpstreamCredentials("T", "s", "path", "v"))

    async def work(connection: Connection) -> None:
        await numbers.add_first(connection, NUMBER)
        number = await numbers.find(connection, NUMBER)
        assert number is not None
        await upstreams.attach(connection, number, Upstream(NUMBER, "http://x", "1", "2", 80, "", 1), sealed)

    await database.commit(work)
    served = await serve(cloud_api=True)
    await served.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    return served


def requested(coreapp: FakeCoreapp) -> list[tuple[str, str, str, Any]]:
    """Return action, name, language and definition of each requested change."""
    return [
        (request.action, request.name, request.language, json.loads(request.definition or b"null"))
        for request in coreapp.requested(core.ChangeTemplate)
    ]


async def test_a_template_is_created_by_the_coreapp_and_returned_as_the_waba_has_it(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await put(database, row(status="PENDING"))
    response = await api.http.post(PATH, json={**ORDER, "namespace": "another", "status": "APPROVED"})
    assert response.status_code == 201, response.text
    (made,) = response.json()["templates"]
    assert (made["namespace"], made["status"], made["components"]) == (NAMESPACE, "PENDING", BODY)
    assert (await api.http.get(PATH)).json()["templates"] == [made]
    assert requested(coreapp) == [("create", "order", "en_US", {**ORDER, "parameter_format": "POSITIONAL"})]
    assert coreapp.requested(core.ChangeTemplate)[0].account == NUMBER


async def test_samples_of_buttons_reach_the_waba(api: Served, coreapp: FakeCoreapp, database: Database) -> None:
    await put(database, row())
    components = [*BODY, {"type": "BUTTONS", "buttons": [URL_BUTTON]}]
    assert (await api.http.post(PATH, json={**ORDER, "components": components})).status_code == 201
    assert requested(coreapp)[0][3]["components"] == components


async def test_the_texts_of_one_time_passwords_are_left_to_the_waba(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await put(database, row(category="AUTHENTICATION"))
    parts: list[dict[str, Any]] = [
        {"type": "BODY", "add_security_recommendation": True},
        {"type": "FOOTER", "code_expiration_minutes": 10},
        {"type": "BUTTONS", "buttons": [{"type": "OTP", "otp_type": "COPY_CODE", "text": "Copy"}]},
    ]
    definition = {**ORDER, "category": "AUTHENTICATION", "components": parts}
    assert (await api.http.post(PATH, json=definition)).status_code == 201
    parts[1]["code_expiration_minutes"] = 5
    assert (await api.http.patch(f"{PATH}/order", json={"components": parts})).status_code == 200
    created, edited = requested(coreapp)
    assert created[3]["components"] == [parts[0], {**parts[1], "code_expiration_minutes": 10}, parts[2]]
    assert edited == ("edit", "order", "en_US", {"components": parts})


async def test_a_template_is_edited_by_the_coreapp(api: Served, coreapp: FakeCoreapp, database: Database) -> None:
    await put(database, row(status="REJECTED"), row(language="de"))
    changed = {"category": "marketing", "components": [{"type": "body", "text": "Hi"}]}
    response = await api.http.patch(f"{PATH}/order", params={"language": "en_US"}, json=changed)
    assert response.status_code == 200, response.text
    definition = {"category": "MARKETING", "components": [{"type": "BODY", "text": "Hi"}]}
    assert requested(coreapp) == [("edit", "order", "en_US", definition)]
    # The Coreapp of this test has mirrored no change.
    assert response.json()["templates"][0]["status"] == "REJECTED"


async def test_a_template_is_deleted_by_the_coreapp(api: Served, coreapp: FakeCoreapp, database: Database) -> None:
    await put(database, row())
    assert (await api.http.delete(f"{PATH}/order?language=en_US&namespace={NAMESPACE}")).status_code == 200
    assert (await api.http.delete(f"{PATH}/created_elsewhere")).status_code == 200
    assert requested(coreapp) == [("delete", "order", "en_US", None), ("delete", "created_elsewhere", "", None)]


@pytest.mark.parametrize("query", ["namespace=another", "language="])
async def test_nothing_is_deleted_in_another_namespace_or_an_empty_language(
    api: Served, coreapp: FakeCoreapp, database: Database, query: str
) -> None:
    await put(database, row())
    assert code(await api.http.delete(f"{PATH}/order?{query}")) == (404, codes.NOT_FOUND)
    assert requested(coreapp) == []


@pytest.mark.parametrize(("refusal", "status"), [(1004, 400), (1009, 400), (1015, 429), (1011, 503), (1000, 500)])
async def test_a_refusal_is_reported_and_stores_nothing(
    api: Served, coreapp: FakeCoreapp, refusal: int, status: int
) -> None:
    coreapp.refuse(core.ChangeTemplate, refusal, "the reason", 7)
    response = await api.http.post(PATH, json=ORDER)
    assert code(response) == (status, refusal)
    assert errors(response)[0]["details"] == "the reason"
    assert response.headers["Retry-After"] == "7"
    assert (await api.http.get(PATH)).json()["templates"] == []


async def test_a_lost_response_is_not_repeated(api: Served, coreapp: FakeCoreapp) -> None:
    def cut(request: core.ChangeTemplate) -> None:
        coreapp.drop()

    coreapp.respond(core.ChangeTemplate, cut)
    assert code(await api.http.post(PATH, json=ORDER)) == (500, codes.INTERNAL_ERROR)
    assert len(coreapp.requested(core.ChangeTemplate)) == 1


async def test_an_invalid_definition_does_not_reach_the_coreapp(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await put(database, row())
    assert code(await api.http.post(PATH, json={**ORDER, "components": []})) == (400, codes.PARAMETER_MISSING)
    assert code(await api.http.patch(f"{PATH}/order", json={"components": []})) == (400, codes.PARAMETER_MISSING)
    assert code(await api.http.patch(f"{PATH}/nothing", json={"category": "UTILITY"})) == (404, codes.NOT_FOUND)
    assert requested(coreapp) == []


async def test_an_import_is_refused(api: Served, coreapp: FakeCoreapp) -> None:
    response = await api.http.post(f"{PATH}/import", json={"data": [ORDER]})
    assert code(response) == (403, codes.ACCESS_DENIED)
    assert "one by one" in errors(response)[0]["details"]
    assert (await api.http.get(PATH)).json()["templates"] == []


async def test_calls_of_the_cloud_api_change_the_waba_as_well(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await put(database, row())
    made = await api.http.post(f"/v25.0/{WABA}/message_templates", json=ORDER)
    assert (made.status_code, made.json()["status"]) == (200, "APPROVED")
    template = f"/v25.0/{made.json()['id']}"
    assert (await api.http.post(template, json={"components": [{"type": "BODY", "text": "Hi"}]})).status_code == 200
    deleted = await api.http.delete(f"/v25.0/{WABA}/message_templates", params={"name": "order"})
    assert deleted.json() == {"success": True}
    assert [action for action, *_ in requested(coreapp)] == ["create", "edit", "delete"]
    await put(database, row(status="PAUSED"))
    assert (await api.http.post(f"{template}/unpause")).status_code == 403


async def sent_over_the_cloud_api(api: Served, coreapp: FakeCoreapp) -> core.AcceptMessage:
    """Send the template with a one-time password. Returns the request to the Coreapp."""
    code_parts = [
        {"type": "body", "parameters": [{"type": "text", "text": "123456"}]},
        {"type": "button", "sub_type": "url", "index": "0", "parameters": [{"type": "text", "text": "123456"}]},
    ]
    template = {"name": "order", "language": {"code": "en_US"}, "components": code_parts}
    message = {"messaging_product": "whatsapp", "to": "15550110001", "type": "template", "template": template}
    response = await api.http.post(f"/v25.0/{NUMBER_ID}/messages", json=message)
    assert response.status_code == 200, response.text
    return coreapp.requested(core.AcceptMessage)[-1]


async def require_valid(wa_id: str, *, checks: bool = False) -> None:
    """Accept every recipient."""


async def test_the_coreapp_accepts_a_template_with_a_time_to_live(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await put(database, row(category="AUTHENTICATION", components=OTP))
    request = await sent_over_the_cloud_api(api, coreapp)
    context: Any = SimpleNamespace(account=NUMBER, clock=SystemClock(), config=SimpleNamespace(blocked=frozenset()))
    peers: Any = SimpleNamespace(window=None, contacts=SimpleNamespace(require_valid=require_valid))
    groups: Any = None
    assert await UpstreamChecks(context, peers, groups).look_up(request) is None
    assert request.ttl == 0


async def test_a_number_that_uses_the_network_again_has_times_to_live_again(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await put(database, row(category="AUTHENTICATION", components=OTP))
    assert (await sent_over_the_cloud_api(api, coreapp)).ttl == 0

    async def work(connection: Connection) -> None:
        number = await numbers.find(connection, NUMBER)
        assert number is not None
        await upstreams.detach(connection, number)

    await database.commit(work)
    await api.parts.common.changes.run_once()
    assert (await sent_over_the_cloud_api(api, coreapp)).ttl == 600


async def test_the_waba_gets_the_time_to_live_of_a_template(
    api: Served, coreapp: FakeCoreapp, database: Database
) -> None:
    await put(database, row())
    name, path = "message_send_ttl_seconds", f"/v25.0/{WABA}/message_templates"
    made = await api.http.post(path, json={**ORDER, name: 60})
    template = f"/v25.0/{made.json()['id']}"
    assert (await api.http.post(template, json={name: "-1"})).text == '{"success":true}'
    both = {"components": [{"type": "BODY", "text": "Hi"}], name: 90}
    assert (await api.http.post(template, json=both)).text == '{"success":true}'
    assert [definition for *_, definition in requested(coreapp)] == [
        {**ORDER, "parameter_format": "POSITIONAL", name: 60},
        {name: -1},
        both,
    ]
    assert error(await api.http.post(template, json={name: 29}))[:2] == (400, 100)
    assert len(requested(coreapp)) == 3
