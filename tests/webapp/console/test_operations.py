"""Signatures, the forms of Try it, settings, templates and faults, and the files that are not ours."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import re
import string
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.authority import Authority
from tests.pages import document
from tests.webapp.conftest import PASSWORD, Serve, Served, basic
from tests.webapp.console.browser import Browser, check_page, forms
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.aio.clock import SystemClock
from tidings.wire import core
from webapp.console.figures.doctor_runs import DoctorRuns
from webapp.console.operations import signatures
from webapp.console.pages import signature, try_it

AUTHORITY = Authority()
CONSOLE = Path(__file__).parents[3] / "webapp" / "console"
SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()
BODY = '{"statuses":[{"id":"gBEG"}]}'


def signed(at: int, body: str = BODY) -> str:
    digest = hmac.digest(bytes(range(24)), f"evt_1.{at}.{body}".encode(), "sha256")
    return "v1," + base64.b64encode(digest).decode()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "valid"),
        ({"signatures": "v1,AAAA " + signed(1_780_000_000)}, "valid"),
        ({"body": BODY + " "}, "differs"),
        ({"event_id": "evt_2"}, "differs"),
        ({"secret": "whsec_AAAA"}, "wrong_secret"),
        ({"secret": "secret"}, "wrong_secret"),
        ({"timestamp": "now"}, "wrong_timestamp"),
        ({"timestamp": "1779999000", "signatures": signed(1_779_999_000)}, "old"),
    ],
)
def test_a_signature_is_checked_as_receivers_do(changes: dict[str, str], reason: str) -> None:
    fields = {"secret": SECRET, "event_id": "evt_1", "timestamp": "1780000000", "body": BODY}
    fields["signatures"] = signed(1_780_000_000)
    assert signatures.check(**{**fields, **changes}, now=1_780_000_010.0).reason == reason


async def test_the_checker_responds_and_keeps_no_secret(browser: Browser) -> None:
    at = int(time.time())
    fields = {"secret": SECRET, "event_id": "evt_1", "timestamp": str(at), "signatures": signed(at), "body": BODY}
    page = "/console/callbacks/signature"
    response = await browser.submit(page, page, fields)
    check_page(response)
    assert "The signature is valid." in response.text
    assert SECRET not in response.text


def test_the_code_of_the_python_receiver_works() -> None:
    code = dict(signature.examples())["Python"]
    found: dict[str, object] = {}
    exec(code, found)
    verify = found["verify"]
    at = int(time.time())
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(at), "webhook-signature": signed(at)}
    assert verify(SECRET, headers, BODY.encode()) is True  # type: ignore[operator]
    assert verify(SECRET, headers, BODY.encode() + b" ") is False  # type: ignore[operator]
    assert [language for language, _ in signature.examples()] == ["Python", "Node", "Go"]


@pytest.mark.parametrize("kind", [kind for kind in try_it.FORMS if kind != "template"])
async def test_each_type_is_sent_and_shown_as_a_command(browser: Browser, coreapp: FakeCoreapp, kind: str) -> None:
    page = f"/console/try-it?type={kind}"
    response = await browser.submit(page, "/console/try-it", {"to": "15550140001"})
    check_page(response)
    assert response.status_code == 200, response.text
    requested = coreapp.requested(core.AcceptMessage)
    assert len(requested) == 1
    assert requested[0].to == "15550140001"
    content = json.loads(requested[0].content)
    assert content["type"] == {"buttons": "interactive", "list": "interactive", "json": "text"}.get(kind, kind)
    assert "/v1/messages" in response.text
    assert "HTTP 201" in response.text
    assert re.search(r'href="/console/messages/gBEG\w+"', response.text)
    # The page shows what happens to the message as it happens.
    assert re.search(r'id="live" [^>]*data-of="/console/messages/gBEG\w+"', response.text)


async def test_a_refused_message_shows_the_response_of_the_api(browser: Browser) -> None:
    response = await browser.submit("/console/try-it", "/console/try-it", {"to": "nobody"})
    assert response.status_code == 400
    assert "&#34;code&#34;: 1009" in response.text
    response = await browser.submit("/console/try-it?type=json", "/console/try-it", {"to": "15550140001", "json": "{"})
    assert response.status_code == 400
    check_page(response)


async def test_the_webhook_is_set_with_the_checks_of_the_api(console: Served, browser: Browser) -> None:
    page, action = "/console/settings", "/console/settings/webhook"
    response = await browser.submit(page, action, {"url": "http://127.0.0.1:8800/", "sent": "1"})
    assert response.status_code == 303, response.text
    found = (await console.http.get("/v1/settings/application")).json()["settings"]["application"]
    assert found["webhooks"]["url"] == "http://127.0.0.1:8800/"
    assert found["webhooks"]["message"] == {"sent": True, "delivered": False, "read": False}
    assert found["callback_persist"] is False
    response = await browser.submit(page, action, {"url": "ftp://127.0.0.1/"})
    assert response.status_code == 400
    assert "should be an absolute URL" in response.text
    response = await browser.submit(page, action, {"url": "http://10.0.0.1/"})
    assert response.status_code == 400
    check_page(response)


async def test_users_are_made_changed_and_deleted(console: Served, browser: Browser) -> None:
    page = "/console/settings"
    fields = {"username": "observer", "password": PASSWORD}
    assert (await browser.submit(page, f"{page}/users", fields)).status_code == 303
    assert (await browser.submit(page, f"{page}/users", fields)).status_code == 500
    assert (await browser.submit(page, f"{page}/users", {**fields, "password": "weak"})).status_code == 400
    login = await console.http.post("/v1/users/login", headers=basic("observer", PASSWORD))
    token = {"Authorization": "Bearer " + login.json()["users"][0]["token"]}
    assert (await console.http.get("/v1/users/observer", headers=token)).status_code == 200
    assert (await browser.submit(page, f"{page}/tokens", {"user": "observer"})).status_code == 303
    assert (await console.http.get("/v1/users/observer", headers=token)).status_code == 401
    changed = {"user": "observer", "new_password": "Another-2026!"}
    assert (await browser.submit(page, f"{page}/password", changed)).status_code == 303
    assert (await console.http.post("/v1/users/login", headers=basic("observer", "Another-2026!"))).status_code == 200
    assert (await browser.submit(page, f"{page}/delete-user", {"user": "observer"})).status_code == 303
    assert (await console.http.get("/v1/users/observer")).status_code == 404
    assert (await browser.submit(page, f"{page}/tokens", {"user": "admin"})).status_code == 303
    assert (await browser.get("/console")).status_code == 303


async def test_the_authorities_of_the_webhook_are_set_and_deleted(console: Served, browser: Browser) -> None:
    page = "/console/settings/certificates"
    response = await browser.submit(page, f"{page}/webhook", {"pem": "no certificate"})
    assert response.status_code == 400
    check_page(response)
    assert "no certificate</textarea>" in response.text
    response = await browser.submit(page, f"{page}/webhook", {"pem": AUTHORITY.pem.decode()})
    assert response.status_code == 303, response.text
    assert (await console.http.get("/v1/certificates/webhooks/ca")).content == AUTHORITY.pem
    check_page(await browser.get(page))
    assert (await browser.submit(page, f"{page}/delete-webhook")).status_code == 303
    assert (await console.http.get("/v1/certificates/webhooks/ca")).status_code == 404
    assert "delete-webhook" not in (await browser.get(page)).text


async def test_the_certificate_of_the_api_is_set_and_its_key_is_never_shown(console: Served, browser: Browser) -> None:
    page = "/console/settings/certificates"
    assert "No certificate is stored." in (await browser.get(page)).text
    key, certificate = AUTHORITY.issue("api.example.com")
    for wrong in ("", "no certificate", (key + certificate).decode()):
        response = await browser.submit(page, f"{page}/api", {"bundle": wrong})
        assert response.status_code == 400
        check_page(response)
        assert "PRIVATE KEY" not in response.text
    response = await browser.submit(page, f"{page}/api", {"bundle": (key + certificate + AUTHORITY.pem).decode()})
    assert response.status_code == 303, response.text
    assert (await console.http.get("/v1/certificates/external/ca")).content == AUTHORITY.pem
    shown = await browser.get(response.headers["Location"])
    check_page(shown)
    assert "<dd>api.example.com</dd>" in shown.text
    assert AUTHORITY.pem.decode().strip() in shown.text
    assert "This Webapp serves plain HTTP" in shown.text
    assert "PRIVATE KEY" not in shown.text


async def test_an_https_webapp_shows_the_certificate_that_it_presents(serve: Serve) -> None:
    served = await serve(console=True, tls=True, tls_names=("made.example.com",))
    await served.log_in()
    browser = Browser.of(served, "https://127.0.0.1")
    await browser.log_in()
    text = (await browser.get("/console/settings/certificates")).text
    assert "made.example.com" in text
    assert "plain HTTP" not in text
    await browser.http.aclose()


async def test_media_providers_are_added_and_deleted_and_their_secrets_never_shown(
    console: Served, browser: Browser
) -> None:
    page = "/console/settings/media"
    fields = {
        "name": "files",
        "kind": "basic",
        "username": "ada",
        "secret": "Geheim-1",
        "hosts": "a.example\nb.example",
    }
    assert (await browser.submit(page, page, fields)).status_code == 303
    response = await browser.submit(page, page, {"name": "bucket", "kind": "bearer", "secret": "Geheim-2"})
    assert response.status_code == 303
    stored = (await console.http.get("/v1/settings/application/media/providers")).json()
    basic_one = {"basic": {"username": "ada", "password": "Geheim-1"}, "hosts": ["a.example", "b.example"]}
    configs = {one["name"]: one["config"] for one in stored["settings"]["application"]["media"]["providers"]}
    assert configs == {"files": basic_one, "bucket": {"bearer": "Geheim-2"}}
    shown = await browser.get(page)
    check_page(shown)
    assert "a.example, b.example" in shown.text
    assert "Geheim" not in shown.text
    response = await browser.submit(page, page, {**fields, "name": "a/b"})
    assert response.status_code == 400
    check_page(response)
    assert "Geheim" not in response.text
    assert (await browser.submit(page, f"{page}/delete", {"name": "files"})).status_code == 303
    assert (await browser.submit(page, f"{page}/delete", {"name": "files"})).status_code == 404
    assert "a.example" not in (await browser.get(page)).text


async def test_the_about_text_is_set(console: Served, browser: Browser) -> None:
    page = "/console/settings/profile"
    assert (await browser.submit(page, f"{page}/about", {"text": "Open <9> to 5"})).status_code == 303
    assert "Open &lt;9&gt; to 5" in (await browser.get(page)).text
    assert (await browser.submit(page, f"{page}/about", {"text": "x" * 1000})).status_code == 400


async def test_a_template_is_checked_while_it_is_typed(console: Served, browser: Browser) -> None:
    page = await browser.get("/console/templates/new")
    editor = document.parse(page.text).one("textarea", id="f-components")
    assert editor.get("data-hx-post") == "/console/templates/check"
    assert document.parse(page.text).one("button", formaction="/console/templates/check").text == "Check"
    form = next(form for form in forms(page.text) if form.action == "/console/templates/new")

    async def check(text: str) -> str:
        components = json.dumps([{"type": "BODY", "text": text}])
        fields = {**form.fields, "name": "greeting", "components": components}
        response = await browser.post("/console/templates/check", fields)
        # htmx replaces nothing by a refusal.
        assert response.status_code == 200
        check_page(response)
        return str(document.parse(response.text).one("div", id="checked").text)

    assert "would accept" in await check("x" * 1024)
    assert "Hello <b>" in await check("Hello <b>")
    assert "would refuse" in await check("x" * 1025)
    assert "would refuse" in await check("")
    assert (await console.http.get("/v1/configs/templates")).json()["templates"] == []


async def test_a_template_is_made_previewed_edited_and_deleted(console: Served, browser: Browser) -> None:
    body = {"type": "BODY", "text": "Hello {{1}}", "example": {"body_text": [["Ada"]]}}
    buttons = {"type": "BUTTONS", "buttons": [{"type": "QUICK_REPLY", "text": "Thanks"}]}
    fields = {"name": "greeting", "language": "en_US", "category": "UTILITY"}
    page = "/console/templates/new"
    response = await browser.submit(page, page, {**fields, "components": json.dumps([body, buttons])})
    assert response.status_code == 303, response.text
    address = response.headers["Location"]
    shown = await browser.get(address)
    check_page(shown)
    assert '<p dir="auto">Hello Ada</p>' in shown.text
    assert "<li><bdi>Thanks</bdi></li>" in shown.text
    longer = [{"type": "BODY", "text": "x" * 1025}]
    response = await browser.submit(address, address, {"components": json.dumps(longer)})
    assert response.status_code == 400
    assert "The template was not saved" in response.text
    response = await browser.submit(address, address, {"components": "[{"})
    assert response.status_code == 400
    response = await browser.submit(address, address, {"components": json.dumps([{"type": "BODY", "text": "Bye"}])})
    assert response.status_code == 303
    stored = (await console.http.get("/v1/configs/templates")).json()["templates"]
    assert stored[0]["components"] == [{"type": "BODY", "text": "Bye"}]
    response = await browser.submit(address, f"{address}/decision", {"decision": "pause"})
    assert response.status_code == 303
    assert (await console.http.get("/v1/configs/templates")).json()["templates"][0]["status"] == "PAUSED"
    for path in (address, "/console/templates"):
        assert '<span class="badge warn">PAUSED</span>' in (await browser.get(path)).text, path
    response = await browser.submit(address, f"{address}/decision", {"decision": "reject"})
    assert response.status_code == 400
    assert (await browser.submit(address, f"{address}/delete", {"typed": "greetings"})).status_code == 400
    assert (await browser.submit(address, f"{address}/delete", {"typed": "greeting"})).status_code == 303
    assert (await console.http.get("/v1/configs/templates")).json()["templates"] == []


async def test_a_preview_formats_texts_as_the_handset_does(console: Served, browser: Browser) -> None:
    text = "*Hi* {{name}}, see https://example.com/a\n> today <b>only</b>"
    named = {"body_text_named_params": [{"param_name": "name", "example": "_Ada_"}]}
    call = {"type": "PHONE_NUMBER", "text": "Call us", "phone_number": "+15550001"}
    visit = {"type": "URL", "text": "Visit", "url": "https://example.com/{{1}}", "example": ["offers"]}
    components: list[dict[str, Any]] = [
        {"type": "BODY", "text": text, "example": named},
        {"type": "BUTTONS", "buttons": [visit, call]},
    ]
    page = "/console/templates/new"
    fields = {"name": "greeting", "language": "en_US", "category": "MARKETING", "components": json.dumps(components)}
    assert (await browser.submit(page, page, fields)).status_code == 400
    response = await browser.submit(page, page, {**fields, "parameter_format": "NAMED"})
    assert response.status_code == 303, response.text
    address = response.headers["Location"]
    # A form that is sent as it is shown changes nothing.
    assert (await browser.submit(address, address, {})).status_code == 303
    shown = await browser.get(address)
    check_page(shown)
    for part in (
        "<b>Hi</b> <i>Ada</i>, see",
        '<a href="https://example.com/a" target="_blank" rel="noopener noreferrer">',
        '<blockquote dir="auto">today &lt;b&gt;only&lt;/b&gt;</blockquote>',
        "<bdi>Visit</bdi><small><bdi>https://example.com/offers</bdi></small>",
        "<bdi>Call us</bdi><small><bdi>+15550001</bdi></small>",
    ):
        assert part in shown.text, part


async def test_a_preview_shows_the_cards_of_a_carousel(console: Served, browser: Browser) -> None:
    def card(text: str) -> dict[str, Any]:
        header = {"type": "HEADER", "format": "IMAGE"}
        buttons = {"type": "BUTTONS", "buttons": [{"type": "QUICK_REPLY", "text": f"Take {text}"}]}
        return {"components": [header, {"type": "BODY", "text": text}, buttons]}

    components = [
        {"type": "BODY", "text": "Offers"},
        {"type": "CAROUSEL", "cards": [card("Lemons"), card("Limes")]},
    ]
    page = "/console/templates/new"
    fields = {"name": "offers", "language": "en_US", "category": "MARKETING"}
    response = await browser.submit(page, page, {**fields, "components": json.dumps(components)})
    assert response.status_code == 303, response.text
    shown = document.parse((await browser.get(response.headers["Location"])).text)
    cards = [each.text for each in shown.all("div") if each.get("class") == "bubble-card"]
    assert [" ".join(words.split()) for words in cards] == [
        "Header: image Lemons Take Lemons",
        "Header: image Limes Take Limes",
    ]


async def test_an_export_is_imported(console: Served, browser: Browser) -> None:
    one = {"name": "order", "language": "en", "category": "UTILITY", "components": [{"type": "BODY", "text": "Hi"}]}
    page, action = "/console/templates", "/console/templates/import"
    response = await browser.submit(page, action, {"export": json.dumps({"data": [one]})})
    assert response.headers["Location"] == "/console/templates?imported=1"
    assert "1 template is stored." in (await browser.get(response.headers["Location"])).text
    for wrong in ("", "[", json.dumps({"data": [{"name": "X"}]})):
        response = await browser.submit(page, action, {"export": wrong})
        assert response.status_code == 400
        check_page(response)
    assert len((await console.http.get("/v1/configs/templates")).json()["templates"]) == 1


async def test_faults_are_added_counted_on_every_page_and_deleted(browser: Browser, console: Served) -> None:
    page = "/console/faults"
    assert "Calls set to fail" not in (await browser.get("/console")).text
    response = await browser.submit(page, page, {"target": "messages", "times": "2", "code": "131000", "http": "503"})
    assert response.status_code == 303, response.text
    assert "Calls set to fail: 2" in (await browser.get("/console/messages")).text
    assert (await console.send()).status_code == 503
    assert "Calls set to fail: 1" in (await browser.get("/console/callbacks")).text
    response = await browser.submit(page, page, {"times": "0"})
    assert response.status_code == 400
    check_page(response)
    assert (await browser.submit(page, f"{page}/clear")).status_code == 303
    assert "Calls set to fail" not in (await browser.get("/console")).text


async def test_the_findings_of_doctor_are_shown_with_remedies(console: Served, browser: Browser) -> None:
    assert "No check was run" in (await browser.get("/console")).text
    assert (await browser.submit("/console", "/console/doctor")).status_code == 303
    runs = next(part for part in console.parts.console.parts if isinstance(part, DoctorRuns))
    if runs._task is not None:
        await runs._task
    text = (await browser.get("/console")).text
    rows = re.findall(r'<th scope="row" data-label="Check">(\w+)</th>', text)
    assert rows == ["webhook", "disk"]
    assert "&lt;i&gt;no answer&lt;/i&gt;" in text
    assert "check that it runs" in text


async def test_a_test_of_the_webhook_follows_the_check_in_progress(tmp_path: Path) -> None:
    log, program = tmp_path / "log", tmp_path / "doctor.py"
    program.write_text(
        "import json, sys\n"
        f"with open({str(log)!r}, 'a') as log: print(*sys.argv[1:], file=log)\n"
        "print(json.dumps({'findings': []}))\n"
    )
    runs = DoctorRuns(SystemClock(), everything=True, program=(sys.executable, str(program)))
    runs.start()
    runs.start(post=True)
    runs.start()
    while runs.report.is_running:
        await asyncio.wait([runs._task] if runs._task is not None else [], timeout=60)
        await asyncio.sleep(0)
    assert log.read_text().splitlines() == ["doctor --quick --json", "doctor --quick --json --post"]


def test_our_script_is_short() -> None:
    assert len((CONSOLE / "static" / "console.js").read_text().splitlines()) <= 200


def test_the_templates_contain_no_text_of_their_own() -> None:
    for path in sorted((CONSOLE / "templates").glob("*.html")):
        source = re.sub(r"\{[{%#].*?[}%#]\}", "", path.read_text(), flags=re.DOTALL)
        source = re.sub(r"<[^>]*>", " ", source)
        words = [word for word in source.split() if set(word) & set(string.ascii_letters)]
        assert words == [], path.name


def test_every_file_of_the_console_is_in_the_wheel() -> None:
    project = tomllib.loads((CONSOLE.parents[1] / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["package-data"]
    patterns = [*data["*"], *data["webapp.console"]]
    present = {
        path.relative_to(CONSOLE)
        for path in CONSOLE.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert len(present) > 20
    assert [str(path) for path in sorted(present) if not any(path.match(pattern) for pattern in patterns)] == []
