"""Site of the pages: entry, headers of every page, forms, links, limits, and the event stream."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from handset.web import app
from tests.handset.business import Recorder
from tests.handset.conftest import LiveNetwork
from tests.handset.scripted import BUSINESS
from tests.handset.web.conftest import ADA, BOB, CHAT, Browser, Page, Pages, register, serving, settings_for
from tests.handset.web.test_messages import PNG, example
from tests.pages import document
from tidings.secrets import private_files

POLICY = re.compile(
    r"default-src 'none'; script-src 'nonce-([A-Za-z0-9_-]{22})'; style-src 'self'; img-src 'self' blob:;"
    r" media-src 'self' blob:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    r" require-trusted-types-for 'script'; trusted-types htmx"
)
PATHS = (
    "/handset",
    f"/handset/{ADA}",
    f"/handset/{ADA}/settings",
    f"/handset/{ADA}/new",
    CHAT,
    f"{CHAT}?answer=1",
    f"{CHAT}?before=9",
    f"{CHAT}/more",
    f"{CHAT}/info",
    f"{CHAT}/forward/1",
    "/handset/15559999999",
    "/handset/nowhere/at/all",
)
LIMIT = 100_000  # bytes of a page with everything that it loads


def check_headers(response: httpx.Response) -> str:
    """Return the nonce of a page after a check of its headers."""
    headers = response.headers
    found = POLICY.fullmatch(headers["content-security-policy"])
    assert found, headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    return found[1]


async def test_without_a_session_a_page_says_how_to_get_a_new_link(pages: Pages, browser: Browser) -> None:
    command = "stop “tidings handset --web” or “tidings up”, and start it again"
    async with pages.unauthenticated() as other:
        for path in ("/handset", CHAT, pages.address.link):
            page = await other.get(path)
            assert (page.status, command in page.text) == (403, True)
    # An open page says it in place when its session ends.
    page = await browser.get(CHAT)
    assert command in page.root.one("section", id="stale").get("data-ended")
    phones = await browser.get("/handset")
    assert "Another browser" in [heading.text for heading in phones.root.all("h2")]


async def test_a_link_opens_the_pages_once(pages: Pages) -> None:
    async with pages.unauthenticated() as browser:
        for _ in range(2):
            # A preview of the link does not use it.
            page = await browser.get(pages.address.link)
            assert page.status == 200
        entered = await browser.send(page, page.root.one("form"), {})
        assert (entered.status, entered.url) == (200, f"{pages.origin}/handset")
        cookie = entered.response.history[0].headers["set-cookie"]
        name, *attributes = cookie.split("; ")
        assert name.startswith(f"tidings_handset_{pages.origin.rpartition(':')[2]}=")
        assert {"HttpOnly", "SameSite=strict", "Path=/handset"} <= set(attributes)
        assert "Domain" not in cookie
        assert (await browser.send(page, page.root.one("form"), {})).status == 403
    async with pages.unauthenticated() as browser:
        assert (await browser.get(pages.address.link)).status == 403


async def test_a_page_makes_a_link_for_another_browser(pages: Pages, browser: Browser) -> None:
    page = await browser.get("/handset")
    (button,) = [each for each in page.root.all("button") if each.text == "Make a link"]
    link = (await browser.press(page, button)).root.one("code").text
    async with pages.browser(link) as other:
        assert (await other.get(f"/handset/{ADA}")).status == 200


async def log_out(browser: Browser) -> Page:
    page = await browser.get("/handset")
    (button,) = [each for each in page.root.all("button") if each.text == "Log out"]
    return await browser.press(page, button)


async def test_a_logout_ends_the_session_of_one_browser(pages: Pages, browser: Browser) -> None:
    page = await browser.get("/handset")
    (button,) = [each for each in page.root.all("button") if each.text == "Make a link"]
    link = (await browser.press(page, button)).root.one("code").text
    name = f"tidings_handset_{pages.origin.rpartition(':')[2]}"
    copied = browser.client.cookies[name]
    async with pages.browser(link) as other:
        left = await log_out(browser)
        assert (left.status, left.root.one("h1").text) == (200, "You are logged out")
        assert "For a new link, stop" in left.text
        assert document.faults(left.response.text) == []
        check_headers(left.response)
        cookie = left.response.headers["set-cookie"]
        assert cookie.startswith(f'{name}=""; ')
        assert {"HttpOnly", "Max-Age=0", "Path=/handset", "SameSite=strict"} <= set(cookie.split("; "))
        assert name not in browser.client.cookies
        assert (await browser.get("/handset")).status == 403
        # Phones stay open, and other sessions continue.
        assert (await other.get(f"/handset/{ADA}")).status == 200
    async with pages.unauthenticated() as thief:
        thief.client.cookies.set(name, copied)
        assert (await thief.get("/handset")).status == 403


async def test_a_logout_without_the_token_of_a_form_is_refused(browser: Browser) -> None:
    for fields in ({}, {"csrf": "x"}):
        assert (await browser.client.post("/handset/logout", data=fields)).status_code == 403
    assert (await browser.get("/handset")).status == 200


async def test_a_logout_whose_end_cannot_be_stored_still_ends_the_session(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(private_files, "replace", fail)
    cookies = dict(browser.client.cookies)
    assert (await log_out(browser)).status == 200
    assert "session.end_not_stored" in caplog.messages
    browser.client.cookies.update(cookies)
    assert (await browser.get("/handset")).status == 403


@pytest.mark.parametrize("path", PATHS)
async def test_nothing_is_shown_without_a_session(pages: Pages, browser: Browser, path: str) -> None:
    async with pages.unauthenticated() as other:
        for cookie in ("", "x", "1.2.3", "ü"):
            port = pages.origin.rpartition(":")[2]
            headers = {"cookie": f"tidings_handset_{port}={cookie}".encode()} if cookie else {}
            response = await other.client.get(path, headers=headers)
            assert response.status_code in (403, 404)
            assert ADA not in response.text
            check_headers(response)


async def test_every_page_is_valid_and_has_the_headers(browser: Browser, shop: Recorder) -> None:
    await shop.send(ADA, "hello")
    await browser.until(CHAT, "hello")
    nonces = set()
    for path in PATHS:
        page = await browser.get(path)
        nonce = check_headers(page.response)
        assert document.faults(page.response.text) == [], path
        assert {script.get("nonce") for script in page.root.all("script")} == {nonce}, path
        assert {each.get("hx-nonce") for each in page.root.walk() if each.get("hx-get")} <= {nonce}, path
        nonces.add(nonce)
    assert len(nonces) == len(PATHS)
    for path in (f"/handset/{ADA}/list?open={BUSINESS}", f"{CHAT}/messages"):
        page = await browser.get(path)
        check_headers(page.response)
        assert document.faults(page.response.text, is_whole=False) == []


async def test_every_link_and_every_form_gets_a_response(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    await register(browser, BOB)
    for name in ("order", "form", "cards"):
        await shop.fleet.send_content(BUSINESS, ADA, example("template", name))
    await shop.fleet.send_content(BUSINESS, ADA, example("interactive", "location request"))
    await browser.until(CHAT, "Options for", 4)
    waiting, forms = ["/handset"], 0
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or len(seen) > 200:
            continue
        seen.add(path)
        page = await browser.get(path)
        assert page.status == 200, path
        for link in page.root.all("a") + page.root.all("link") + page.root.all("script"):
            target = urljoin(path, link.get("href") or link.get("src")).partition("#")[0]
            if target.startswith("/"):
                waiting.append(target)
        for form in page.root.all("form"):
            # Without its token each is refused, and with it none is unknown.
            url = urljoin(page.url, form.get("action"))
            assert (await browser.client.post(url, data={"to": "x"})).status_code == 403, url
            forms += 1
    assert len(seen) > 20
    assert forms > 20


async def test_forms_of_others_are_refused(browser: Browser, shop: Recorder) -> None:
    page = await browser.get(CHAT)
    form = page.root.one("form", id="composer")
    token = form.one("input", name="csrf").get("value")
    url = urljoin(page.url, form.get("action"))
    for given in ("", "x", token[:-1], token.upper(), "ü"):
        assert (await browser.client.post(url, data={"csrf": given, "text": "evil"})).status_code == 403
    for site in ("cross-site", "same-site"):
        response = await browser.client.post(
            url, data={"csrf": token, "text": "evil"}, headers={"sec-fetch-site": site}
        )
        assert response.status_code == 403
    await browser.client.post(url, data={"csrf": token, "text": "good"}, headers={"sec-fetch-site": "same-origin"})
    await shop.until(lambda: [m.text for m in shop.messages] == ["good"])


async def test_each_session_has_its_own_token(pages: Pages, browser: Browser) -> None:
    page = await browser.get("/handset")
    (button,) = [each for each in page.root.all("button") if each.text == "Make a link"]
    link = (await browser.press(page, button)).root.one("code").text
    async with pages.browser(link) as other:
        tokens = [
            (await each.get("/handset")).root.all("input", name="csrf")[0].get("value") for each in (browser, other)
        ]
    assert tokens[0] != tokens[1]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost", 200),
        ("127.0.0.1", 200),
        ("[::1]:9099", 200),
    ],
)
async def test_the_host_is_checked(browser: Browser, host: str, status: int) -> None:
    response = await browser.client.get("/handset", headers={"host": host})
    assert response.status_code == status
    check_headers(response)


async def test_on_another_address_the_pages_use_tls_and_a_cookie_of_the_host_alone(
    live_network: LiveNetwork, tmp_path: Path
) -> None:
    settings = settings_for(
        live_network, tmp_path / "pages", address=("0.0.0.0", 0), hosts=frozenset({"phones.example"})
    )
    async with serving(settings) as pages:
        link = pages.address.link.replace("0.0.0.0", "127.0.0.1")
        assert link.startswith("https://")
        async with pages.browser(link) as browser:
            cookie = next(iter(browser.client.cookies.jar))
            origin = link.partition("/handset")[0]
            name = f"__Host-tidings_handset_{origin.rpartition(':')[2]}"
            assert (cookie.name, cookie.secure, cookie.path) == (name, True, "/")
            for host, status in (("phones.example", 200), ("evil.example", 421)):
                assert (await browser.client.get(f"{origin}/handset", headers={"host": host})).status_code == status


async def test_assets_are_kept_by_their_content(browser: Browser) -> None:
    page = await browser.get(CHAT)
    urls = [script.get("src") for script in page.root.all("script")]
    urls += [link.get("href") for link in page.root.all("link")]
    assert len(urls) == 6
    for url in urls:
        response = await browser.client.get(url)
        assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert response.headers["x-content-type-options"] == "nosniff"
        response = await browser.client.get(url.partition("?")[0])
        assert response.headers["cache-control"] == "no-cache"
    assert (await browser.get("/handset/static/vendored.json")).status == 404
    assert (await browser.get("/handset/static/..%2fapp.py")).status == 404


async def test_a_page_with_all_that_it_loads_has_at_most_100_kilobytes(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    for n in range(30):
        content = example("template", "order") if n % 2 else example("interactive", "list")
        await shop.fleet.send_content(BUSINESS, ADA, content)
    page = await browser.until(CHAT, "Options for", 30)
    urls = [script.get("src") for script in page.root.all("script")]
    urls += [link.get("href") for link in page.root.all("link")]
    responses = [page.response, *[await browser.client.get(url) for url in urls]]
    sizes = [response.num_bytes_downloaded for response in responses]
    assert sum(sizes) <= LIMIT, sizes


async def test_first_paint_needs_no_script(browser: Browser) -> None:
    page = await browser.get(CHAT)
    assert all("defer" in script.attributes for script in page.root.all("script"))


def test_the_own_script_has_at_most_200_lines_and_writes_no_html() -> None:
    script = (Path(app.__file__).parent / "static" / "handset.js").read_text()
    assert len(script.splitlines()) <= 200
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", script)
    assert "http:" not in script
    assert "https:" not in script


def test_the_style_sheet_loads_nothing_and_knows_both_schemes() -> None:
    style = (Path(app.__file__).parent / "static" / "handset.css").read_text()
    assert "url(" not in style
    assert "@import" not in style
    for query in ("prefers-color-scheme: dark", "prefers-reduced-motion", "forced-colors", "max-width: 44rem"):
        assert query in style


async def test_pages_on_several_ports_of_a_host_keep_their_sessions(live_network: LiveNetwork, tmp_path: Path) -> None:
    first, second = (settings_for(live_network, tmp_path / name) for name in ("first", "second"))
    async with serving(first) as one, serving(second) as other, one.browser() as browser:
        page = await browser.get(other.address.link)
        assert (await browser.send(page, page.root.one("form"), {})).status == 200
        for each in (one, other):
            assert (await browser.get(each.address.url)).status == 200


@contextlib.asynccontextmanager
async def without_table(directory: Path, table: str) -> AsyncIterator[None]:
    """Make the store of the pages fail for one table."""

    def rename(old: str, new: str) -> None:
        with contextlib.closing(sqlite3.connect(directory / "handset.db", timeout=30)) as database:
            database.execute(f"ALTER TABLE {old} RENAME TO {new}")

    # The pages may be writing, in this event loop.
    await asyncio.to_thread(rename, table, f"lost_{table}")
    yield
    await asyncio.to_thread(rename, f"lost_{table}", table)


async def test_without_the_store_a_page_gets_503_with_retry_after(
    pages: Pages, browser: Browser, tmp_path: Path
) -> None:
    async with without_table(tmp_path / "pages", "handset_chat_items"):
        for path in ("/handset", f"{CHAT}?answer=1"):
            page = await browser.get(path)
            assert (page.status, "cannot be read or written" in page.text) == (503, True)
            assert page.response.headers["retry-after"] == "5"
            check_headers(page.response)
            assert document.faults(page.response.text) == []
            assert path in [link.get("href") for link in page.root.all("a")]
    assert (await browser.get(CHAT)).status == 200


async def test_a_form_that_the_store_refuses_can_be_sent_again(browser: Browser, tmp_path: Path) -> None:
    path = f"/handset/{ADA}/settings"
    page = await browser.get(path)
    async with without_table(tmp_path / "pages", "handset_preferences"):
        kept = await browser.send(page, page.root.all("form")[0], {"name": 'Ada "Countess"'})
        assert (kept.status, "cannot be read or written" in kept.text) == (503, True)
        assert kept.response.headers["retry-after"] == "5"
        check_headers(kept.response)
        assert document.faults(kept.response.text) == []
    done = await browser.send(kept, kept.root.one("form"), {})
    assert done.url.endswith(f"{path}?saved=1")
    assert done.root.one("input", name="name").get("value") == 'Ada "Countess"'


async def test_a_message_that_the_store_refuses_can_be_sent_again(
    browser: Browser, shop: Recorder, tmp_path: Path
) -> None:
    page = await browser.get(CHAT)
    form = page.root.one("form", id="composer")
    async with without_table(tmp_path / "pages", "handset_outbox"):
        kept = await browser.send(page, form, {"text": "not lost"})
        assert kept.status == 503
        assert kept.root.one("textarea", id="text").text == "not lost"
    async with (
        without_table(tmp_path / "pages", "handset_chat_items"),
        without_table(tmp_path / "pages", "handset_outbox"),
    ):
        kept = await browser.send(page, form, {"text": "not lost"})
        assert (kept.status, kept.root.one("textarea").text) == (503, "not lost")
    assert (await browser.send(kept, kept.root.one("form"), {})).status == 200
    await shop.until(lambda: [message.text for message in shop.messages] == ["not lost"])


async def test_a_message_that_is_only_not_recorded_yet_goes_out_once(
    browser: Browser, shop: Recorder, tmp_path: Path
) -> None:
    page = await browser.get(CHAT)
    async with without_table(tmp_path / "pages", "handset_chat_items"):
        sent = await browser.send(page, page.root.one("form", id="composer"), {"text": "once"})
        # The chat, to which the form leads, cannot be shown.
        assert (sent.status, sent.response.history[0].status_code) == (503, 303)
    await browser.until(CHAT, r"\bonce\b")
    await shop.until(lambda: [message.text for message in shop.messages] == ["once"])


async def test_an_upload_beyond_the_limit_is_refused(
    browser: Browser, shop: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "MAX_UPLOAD", 10_000)
    page = await browser.get(CHAT)
    form = page.root.one("form", id="composer")
    large = await browser.send(page, form, {}, files={"file": ("cat.png", PNG * 10)})
    assert (large.status, "too large" in large.text) == (413, True)
    assert (await browser.send(page, form, {}, files={"file": ("cat.png", PNG)})).status == 200


async def test_a_form_beyond_the_limit_is_refused(browser: Browser) -> None:
    page = await browser.get(f"/handset/{ADA}/settings")
    large = await browser.send(page, page.root.all("form")[0], {"name": "x" * 1_100_000})
    assert large.status == 413
    assert (await browser.send(page, page.root.all("form")[0], {"name": "x" * 1000})).status == 200


async def test_an_upload_without_a_session_is_limited_as_a_form(browser: Browser) -> None:
    browser.client.cookies.clear()
    files = {"file": ("cat.png", PNG + bytes(1_100_000))}
    assert (await browser.client.post("/handset/enter/send", files=files)).status_code == 413


async def test_methods_that_a_page_does_not_have_are_refused(browser: Browser) -> None:
    assert (await browser.client.post("/handset")).status_code == 405
    assert (await browser.client.get(f"{CHAT}/send")).status_code == 405
    assert (await browser.client.put(CHAT)).status_code == 405
    assert (await browser.client.head(CHAT)).status_code == 200


# The event stream.


async def read(lines: httpx.Response, pattern: str) -> str:
    """Return what a stream sends up to a line that matches."""
    found = ""
    async with asyncio.timeout(30):
        async for chunk in lines.aiter_text():
            found += chunk
            if re.search(pattern, found, re.MULTILINE):
                return found
    raise AssertionError(found)


async def test_the_stream_says_that_something_has_changed(browser: Browser, shop: Recorder) -> None:
    url = f"/handset/{ADA}/events"
    async with browser.client.stream("GET", url) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        await shop.send(ADA, "one")
        found = await read(response, "^event: changed")
    assert found.startswith("retry: 2000\n\n")
    last = re.findall(r"^id: (\S+)$", found, re.MULTILINE)[-1]
    await shop.send(ADA, "two")
    await browser.until(CHAT, r"\btwo\b")
    async with browser.client.stream("GET", url, headers={"last-event-id": last}) as response:
        assert "event: changed" in await read(response, "^event: ")
    async with browser.client.stream("GET", url, headers={"last-event-id": "00000000-1"}) as response:
        assert "event: reset" in await read(response, "^event: ")


async def test_the_stream_of_a_page_begins_where_the_page_was_made(browser: Browser, shop: Recorder) -> None:
    page = await browser.get(CHAT)
    await shop.send(ADA, "between page and stream")
    await browser.until(CHAT, "between page and stream")
    async with browser.client.stream("GET", page.root.one("body").get("data-stream")) as response:
        assert "event: changed" in await read(response, "^event: ")


async def test_a_session_has_at_most_8_streams(browser: Browser) -> None:
    url, opened = f"/handset/{ADA}/events", []
    for _ in range(8):
        response = await browser.client.send(browser.client.build_request("GET", url), stream=True)
        assert response.status_code == 200
        opened.append(response)
    refused = await browser.client.get(url)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
    await opened.pop().aclose()
    async with asyncio.timeout(30):
        while True:
            response = await browser.client.send(browser.client.build_request("GET", url), stream=True)
            opened.append(response)
            if response.status_code == 200:
                break
            await asyncio.sleep(0.02)
    for response in opened:
        await response.aclose()


async def test_streams_of_a_session_end_with_it(browser: Browser) -> None:
    async with browser.client.stream("GET", f"/handset/{ADA}/events") as response:
        await log_out(browser)
        async with asyncio.timeout(10):
            async for _ in response.aiter_text():
                pass


async def test_streams_end_when_the_process_stops(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with serving(settings_for(live_network, tmp_path / "pages")) as pages, pages.browser() as browser:
        await register(browser, ADA)
        async with browser.client.stream("GET", f"/handset/{ADA}/events") as response:
            pages.stop.set()
            async with asyncio.timeout(10):
                async for _ in response.aiter_text():
                    pass
                await pages.task
