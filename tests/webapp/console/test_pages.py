"""Every page of the console: headers, valid HTML, links, forms, roles, and hostile values."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

import pytest

from tests.webapp.conftest import PASSWORD, Served
from tests.webapp.console.browser import Browser, check_common, check_headers, check_page, forms, links
from tests.webapp.console.conftest import NUMBER
from tests.webapp.console.scene import (
    AT,
    attempt,
    callback,
    fail_attempts,
    message,
    store_attempts,
    store_callbacks,
    store_messages,
)
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import ordinary
from tidings.storage.business import messages, numbers
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire import core
from webapp.console.page_request import ConsoleRoute, RequiredRole
from webapp.console.routes import ROUTES

CANARY = "\"><script>alert('canary')</script><img src=x onerror=alert(1)>{{7*7}}\u202e"
TEMPLATE = {"name": "greeting", "language": "en_US", "components": [{"type": "BODY", "text": "Hello {{1}}"}]}
# Forms that end the session, and forms of pages that need more than these rows, tested elsewhere.
SESSION_ENDS = ("/console/logout", "/console/settings/tokens")
# The button of another form leads to the check of a template.
ELSEWHERE = (
    *SESSION_ENDS,
    "/console/templates/check",
    "/console/callbacks/changes/{id}/stop",
    "/console/settings/certificates/delete-webhook",
)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(32)
# Largest page with its style sheet and scripts, bytes.
MAX_PAGE = 100_000


@pytest.fixture
async def full(console: Served, database: Database, coreapp: FakeCoreapp, browser: Browser) -> Browser:
    """Browser at a console with rows on every page."""
    sent = message(1, kept=b"sealed")
    failed = message(2, status=int(Status.FAILED))
    await store_messages(database, sent, failed, message(3, status=int(Status.READ)))
    async with database.transaction() as connection:
        await messages.note_failures(connection, {failed.id: 470}, AT)
        await numbers.add_first(connection, "15550000000")
        await numbers.add(connection, "15559990000")
    await fail_attempts(database, sent, "no route")
    await store_callbacks(
        database,
        pending=[callback(1, subject=sent.id)],
        failing=[callback(2, attempt=2, due_at=AT, last_error="HTTP 500")],
        dead=[callback(3, attempt=9, last_error="refused")],
        done=[callback(4, subject=sent.id)],
    )
    await store_attempts(database, attempt(callback(2), 1, 500, "HTTP 500"), attempt(callback(2), 2, 500, "HTTP 500"))
    coreapp.respond(core.ReadCallback, lambda q: core.CallbackText(q.n, b'{"statuses":[{"id":"1"}]}', []))
    coreapp.respond(core.ShowMessage, lambda q: core.Shown(q.n, b'{"type":"text"}'))
    coreapp.respond(core.ResendCallbacks, lambda q: core.Replayed(q.n, len(q.seqs)))
    coreapp.respond(core.PurgeCallbacks, lambda q: core.Purged(q.n, len(q.seqs)))
    assert (await console.http.post("/v1/configs/templates", json=TEMPLATE)).status_code == 201
    await ordinary(console)
    provider = [{"name": "files", "type": "www", "config": {"bearer": "secret"}}]
    added = await console.http.post("/v1/settings/application/media/providers", json=provider)
    assert added.status_code == 200
    photo = await console.http.post("/v1/settings/profile/photo", content=PNG, headers={"Content-Type": "image/png"})
    assert photo.status_code == 200
    assert (await browser.submit("/console/faults", "/console/faults")).status_code == 303
    return browser


def example(route: ConsoleRoute) -> str:
    """Return a path of a route, with invented values for its parameters."""
    return re.sub(r"\{(\w+)\}", "1", route.path)


async def crawl(browser: Browser) -> dict[str, str]:
    """Follow all links from the overview. Returns the pages by their addresses."""
    found: dict[str, str] = {}
    waiting = ["/console"]
    while waiting:
        address = waiting.pop()
        if address in found or not address.startswith("/console") or "/static/" in address or "/login" in address:
            continue
        response = await browser.get(address)
        assert response.status_code == 200, address
        check_page(response)
        found[address] = response.text
        waiting += links(response.text)
    return found


async def test_every_link_leads_to_a_valid_page(full: Browser) -> None:
    found = await crawl(full)
    paths = {address.partition("?")[0] for address in found}
    for route in ROUTES:
        is_page = "changes/" not in route.path and not route.path.endswith("/photo")
        if route.method == "GET" and route.role is not RequiredRole.NONE and is_page:
            assert any(route.match(path) is not None for path in paths), f"no link leads to {route.path}"
    for address, text in found.items():
        # The first route of the table that matches serves the page.
        route = next(
            each for each in ROUTES if each.method == "GET" and each.match(address.partition("?")[0]) is not None
        )
        assert ("data-of=" in text) == route.is_live, address


async def test_every_form_responds(full: Browser) -> None:
    sent = set()
    for address, text in (await crawl(full)).items():
        for form in forms(text):
            if form.action in SESSION_ENDS:
                continue
            if form.method == "get":
                response = await full.get(form.action, params=form.fields)
                assert response.status_code == 200, f"{form.action} of {address}"
            else:
                assert form.fields["csrf"], f"{form.action} of {address}"
                response = await full.post(form.action, form.fields)
                assert response.status_code in (200, 303, 400, 409), f"{form.action} of {address}: {response.text}"
            if response.status_code != 303:
                check_page(response)
            check_headers(response)
            sent.add(form.action)
    posts = [route for route in ROUTES if route.method == "POST" and route.role is not RequiredRole.NONE]
    left = [
        route.path
        for route in posts
        if route.path not in ELSEWHERE and not any(route.match(action) is not None for action in sent)
    ]
    assert left == [], "forms that no page has"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_every_page_needs_its_role(
    console: Served, unauthenticated_browser: Browser, route: ConsoleRoute
) -> None:
    if route.role is RequiredRole.NONE:
        return
    path = example(route)
    response = await (
        unauthenticated_browser.get(path) if route.method == "GET" else unauthenticated_browser.post(path, {})
    )
    assert response.status_code == 303
    assert response.headers["Location"].startswith("/console/login")
    # A cookie with the token of an ordinary user, signed by this installation.
    token = (await ordinary(console))["Authorization"].removeprefix("Bearer ")
    await sign_in(console, unauthenticated_browser, token)
    response = await (
        unauthenticated_browser.get(path) if route.method == "GET" else unauthenticated_browser.post(path, {})
    )
    assert response.status_code == 403
    check_page(response)


async def sign_in(console: Served, browser: Browser, token: str) -> None:
    """Give a browser a session with any token, as the console would write it."""
    assert console.parts.console.site is not None
    cookies = console.parts.console.site.cookies
    moment = int(time.time())
    mac = cookies._mac("session", str(moment), token)
    await browser.get("/console/login")
    name = next(each.name for each in browser.http.cookies.jar).replace("-form", "-session")
    browser.http.cookies.set(name, f"{moment}~{token}~{mac}", domain="127.0.0.1", path="/console")


async def test_every_form_needs_its_token(browser: Browser) -> None:
    for route in ROUTES:
        if route.method == "POST":
            response = await browser.post(example(route), {})
            assert response.status_code == 403, route.path
            check_page(response)


@pytest.mark.parametrize(
    "path", ["/console/nothing", "/console/messages/none", "/console/callbacks/1", "/console/static/x"]
)
async def test_an_unknown_page_is_not_found(browser: Browser, path: str) -> None:
    response = await browser.get(path)
    assert response.status_code == 404
    check_headers(response)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("messages/gBEGkYiEB1VX", "message gBEGkYiEB1VX is not stored"),
        ("callbacks/1", "callback 1 is not stored"),
        ("callbacks/changes/nothing", "this replay or deletion is not stored"),
        ("templates/ns/greeting/de", "there is no template greeting (de)"),
    ],
)
async def test_a_page_about_a_deleted_row_says_so(browser: Browser, path: str, words: str) -> None:
    response = await browser.get(f"/console/{path}")
    assert response.status_code == 404
    assert words in response.text
    check_page(response)


async def test_another_method_is_refused_with_the_allowed_ones(browser: Browser) -> None:
    response = await browser.http.put("/console/messages")
    assert (response.status_code, response.headers["Allow"]) == (405, "GET")
    check_page(response)


async def test_a_head_request_has_the_headers_of_the_page(browser: Browser) -> None:
    response = await browser.http.head("/console")
    assert (response.status_code, response.content) == (200, b"")
    check_headers(response)


async def test_static_files_are_cached_by_their_content(unauthenticated_browser: Browser) -> None:
    page = await unauthenticated_browser.get("/console/login")
    names = [address for address in links(page.text) if "/static/" in address]
    names += re.findall(r'src="(/console/static/[^"]+\.js[^"]*)"', page.text)
    assert len(set(names)) == 6
    for address in names:
        response = await unauthenticated_browser.get(address)
        assert response.status_code == 200
        check_common(response)
        assert response.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        other = await unauthenticated_browser.get(address + "0")
        assert (other.status_code, other.headers["Cache-Control"]) == (200, "no-cache")


async def test_a_page_with_its_files_is_at_most_100_kb(full: Browser) -> None:
    files = 0
    page = await full.get("/console/login")
    for address in {*re.findall(r'(?:src|href)="(/console/static/[^"]+)"', (await full.get("/console")).text)}:
        files += len((await full.get(address)).content)
    assert files > 40_000
    for address, text in (await crawl(full)).items():
        assert files + len(text.encode()) <= MAX_PAGE, address
    del page


async def test_a_hostile_value_is_shown_as_text_everywhere(
    console: Served, database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    short = "<b onclick=x>"
    sent = message(1, kept=b"sealed", peer=CANARY[:40], kind=short, category=short, request_id=CANARY[:64])
    await store_messages(database, sent)
    dead = callback(1, subject=CANARY[:64], kind=short, attempt=1, last_error=CANARY, request_id=CANARY[:64])
    of_message = callback(2, subject=sent.id, event=CANARY[:64])
    accepted = callback(3, subject=sent.id, event=CANARY[:64], recipient=CANARY[:40], kind=short)
    await store_callbacks(database, dead=[dead], pending=[of_message], done=[accepted])
    tried = attempt(dead, 1, 500, CANARY, b"sealed")
    await store_attempts(database, tried)
    hostile = f'{{"text":{{"body":"{CANARY.replace(chr(34), "")}"}}}}'.encode()
    response = core.AttemptResponse(tried.at, CANARY.encode())
    coreapp.respond(core.ReadCallback, lambda q: core.CallbackText(q.n, hostile, [response]))
    coreapp.respond(core.ShowMessage, lambda q: core.Shown(q.n, CANARY.encode()))
    coreapp.refuse(core.ResendCallbacks, 1016, CANARY)
    template = {**TEMPLATE, "components": [{"type": "BODY", "text": CANARY.replace("{{7*7}}", "")}]}
    assert (await console.http.post("/v1/configs/templates", json=template)).status_code == 201
    pages = list((await crawl(browser)).values())
    for address in ("/console/messages", "/console/callbacks"):
        for name in ("recipient", "id", "status", "type", "kind", "message", "since", "until", "before", "direction"):
            result = await browser.get(f"{address}?{name}={quote(CANARY)}")
            check_page(result)
            pages.append(result.text)
    for page, action in (
        (f"/console/messages/{sent.id}", f"/console/messages/{sent.id}/content"),
        (f"/console/callbacks/{dead.seq}", f"/console/callbacks/{dead.seq}/body"),
    ):
        result = await browser.submit(page, action)
        pages.append(result.text)
        check_page(result)
    fields = {"secret": CANARY, "event_id": CANARY, "timestamp": CANARY, "signatures": CANARY, "body": CANARY}
    result = await browser.submit("/console/callbacks/signature", "/console/callbacks/signature", fields)
    check_page(result)
    pages.append(result.text)
    result = await browser.submit("/console/templates/new", "/console/templates/new", dict.fromkeys(TEMPLATE, CANARY))
    check_page(result)
    pages.append(result.text)
    assert sum("canary" in text for text in pages) > 10
    for text in pages:
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert "<b onclick" not in text
        assert "49" not in re.findall(r"onerror=alert\(1\)[^<]{0,20}", text)


async def test_a_canary_in_every_field_of_every_form_is_escaped(full: Browser) -> None:
    seen = 0
    for address, text in (await crawl(full)).items():
        for form in forms(text):
            typed = {name: CANARY for name in form.fields if name not in ("csrf", "seq")}
            if form.action in SESSION_ENDS or not typed:
                continue
            if form.method == "get":
                response = await full.get(form.action, params=typed)
            else:
                response = await full.post(form.action, {**form.fields, **typed})
            assert response.status_code in (200, 303, 400, 401, 403, 404, 409, 503), f"{form.action} of {address}"
            if response.status_code == 303:
                response = await full.get(response.headers["Location"])
            check_page(response)
            seen += "canary" in response.text
            for hostile in ("<script>alert", "<img src=x"):
                assert hostile not in response.text, f"{form.action} of {address}"
    assert seen > 5
    await crawl(full)


async def test_files_load_nothing_from_another_host(unauthenticated_browser: Browser) -> None:
    page = await unauthenticated_browser.get("/console/login")
    for address in {*re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page.text)}:
        text = (await unauthenticated_browser.get(address)).text
        assert not re.search(r"@import|url\(|importScripts|sendBeacon", text), address
        assert "htmx" in address or not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), address


async def test_an_administrator_of_another_number_sees_none_of_the_first(
    database: Database, browser: Browser, unauthenticated_browser: Browser
) -> None:
    other = message(1, account="15559990000")
    await store_messages(database, other, message(2))
    await store_callbacks(database, dead=[callback(1, account="15559990000"), callback(2)])
    listed = (await browser.get("/console/messages")).text
    assert listed.count('class="mono" href="/console/messages/') == 1
    assert other.id not in listed
    assert (await browser.get(f"/console/messages/{other.id}")).status_code == 404
    hidden = callback(1).seq
    assert str(hidden) not in (await browser.get("/console/callbacks")).text
    assert (await browser.get(f"/console/callbacks/{hidden}")).status_code == 404
    assert NUMBER in listed


async def test_login_pages_are_valid(unauthenticated_browser: Browser) -> None:
    for path in ("/console/login", "/console/login?next=/console/messages"):
        check_page(await unauthenticated_browser.get(path))
    response = await unauthenticated_browser.submit(
        "/console/login", "/console/login", {"username": CANARY, "password": PASSWORD}
    )
    check_page(response)
    assert response.status_code == 401
