"""Event streams of open pages: their events, their number, and their end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import quote

import httpx
import pytest

from harness import polling
from tests.webapp.conftest import Serve, Served
from tests.webapp.console import scene
from tests.webapp.console.browser import Browser, check_common, check_headers
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.pages.event_streams import EventStreams
from tidings.storage.database import Database
from webapp.console import streams
from webapp.console.console_wiring import ConsoleParts
from webapp.console.streams import PageWatch

MAX_OF_USER = 8  # streams, a literal of docs/limits.md
STREAM = "/console/stream?of=" + quote("/console/messages")


@pytest.fixture
async def open_browser(
    serve: Serve, coreapp: FakeCoreapp, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Served, Browser]]:
    """Webapp on a socket, whose streams look for changes 50 times per second, and a browser with a session."""
    monkeypatch.setattr(streams, "RENDER_SECONDS", 0.02)
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.1)
    served = await serve(console=True, over_socket=True)
    await served.log_in()
    browser = Browser(httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False, timeout=20))
    await browser.log_in()
    yield served, browser
    await browser.http.aclose()


@contextlib.asynccontextmanager
async def stream(browser: Browser, path: str = STREAM, **headers: str) -> AsyncIterator[httpx.Response]:
    async with browser.http.stream("GET", path, headers=headers) as response:
        yield response


async def event(lines: AsyncIterator[str], name: str) -> dict[str, str]:
    """Return the fields of the next event of this name."""
    found: dict[str, str] = {}
    async with asyncio.timeout(20):
        async for line in lines:
            if not line:
                if found.get("event") == name:
                    return found
                found = {}
            elif not line.startswith(":"):
                field, _, value = line.partition(": ")
                found[field] = value
    raise AssertionError(f"the stream ended without {name}")


def streams_of(console: ConsoleParts) -> EventStreams:
    assert console.site is not None
    return console.site.streams


async def test_a_stream_reports_each_change_of_its_page_with_an_id(
    open_browser: tuple[Served, Browser], database: Database
) -> None:
    _, browser = open_browser
    async with stream(browser) as response:
        assert response.status_code == 200
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        check_common(response)
        assert response.headers["Cache-Control"] == "no-store"
        lines = response.aiter_lines()
        first = await event(lines, "changed")
        await scene.store_messages(database, scene.message(1))
        second = await event(lines, "changed")
    assert first["id"] == first["data"]
    assert first["id"] != second["id"]
    page = (await browser.get("/console/messages")).text
    assert f'data-digest="{second["id"]}"' in page
    # A client that connects again with this id gets no event until the next change.
    async with stream(browser, **{"Last-Event-ID": second["id"]}) as response:
        lines = response.aiter_lines()
        seen = [await anext(lines) for _ in range(12)]
        assert ": keep-alive" in seen
        assert {line for line in seen if line.startswith("event")} == {"event: beat"}


async def test_a_page_that_updates_itself_shows_what_its_stream_has_just_found(
    open_browser: tuple[Served, Browser], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    served, browser = open_browser
    monkeypatch.setattr(streams, "RENDER_SECONDS", 60.0)
    other = Browser(httpx.AsyncClient(base_url=f"http://127.0.0.1:{served.port}", trust_env=False, timeout=20))
    await other.log_in()
    update = {"HX-Request": "true"}
    async with stream(browser, STREAM + quote("?type=text")) as response:
        lines = response.aiter_lines()
        found = f'data-digest="{(await event(lines, "changed"))["id"]}"'
        await scene.store_messages(database, scene.message(1))
        shown = await browser.get("/console/messages?type=text", headers=update)
        assert found in shown.text
        check_headers(shown)
        check_common(shown)
        # A page that is opened, another page, and that of another session are read.
        for read in (
            await browser.get("/console/messages?type=text"),
            await browser.get("/console/messages", headers=update),
            await other.get("/console/messages?type=text", headers=update),
        ):
            assert found not in read.text
            assert scene.PEER in read.text
        monkeypatch.setattr(streams, "CURRENT", 0.0)
        assert found not in (await browser.get("/console/messages?type=text", headers=update)).text
    await other.http.aclose()


async def test_a_stream_that_has_ended_leaves_nothing_of_its_page(open_browser: tuple[Served, Browser]) -> None:
    served, browser = open_browser
    site = served.parts.console.site
    assert site is not None
    async with stream(browser) as response:
        lines = response.aiter_lines()
        await event(lines, "changed")
        assert len(site.watched) == 1
    await polling.until(lambda: not site.watched, seconds=20)


async def test_a_stream_ends_with_its_session(open_browser: tuple[Served, Browser]) -> None:
    served, browser = open_browser
    async with stream(browser) as response:
        lines = response.aiter_lines()
        await event(lines, "changed")
        assert (await served.http.delete("/v1/users/admin/tokens")).status_code == 200
        await event(lines, "ended")
        assert [line async for line in lines] == []


async def test_a_user_has_at_most_8_streams(open_browser: tuple[Served, Browser]) -> None:
    served, browser = open_browser
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(MAX_OF_USER):
            response = await stack.enter_async_context(stream(browser))
            assert response.status_code == 200
        refused = await browser.get(STREAM)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "5"
        # The page itself is still served, so that a browser polls it.
        assert (await browser.get("/console/messages")).status_code == 200
    await polling.until(lambda: not streams_of(served.parts.console).count, seconds=20)
    async with stream(browser) as response:
        assert response.status_code == 200


async def test_the_stop_of_the_webapp_ends_its_streams(open_browser: tuple[Served, Browser]) -> None:
    served, browser = open_browser
    async with stream(browser) as response:
        lines = response.aiter_lines()
        await event(lines, "changed")
        stop = asyncio.Event()
        stop.set()
        await served.parts.console.last[0].run(stop)
        async with asyncio.timeout(5):
            assert not any([line.startswith("event: changed") async for line in lines])


@pytest.mark.parametrize(
    "target",
    [
        "/console/nothing",
        "/v1/users",
        "https://example.com/console",
        "//[",
        "/console/logout",
        # Pages without a part that updates itself: a stream would repeat their work every few seconds.
        "/console/login",
        "/console/settings",
        "/console/callbacks/change?action=replay",
    ],
)
async def test_a_stream_for_an_unknown_page_is_refused(open_browser: tuple[Served, Browser], target: str) -> None:
    _, browser = open_browser
    response = await browser.get("/console/stream", params={"of": target})
    assert response.status_code in (400, 404, 405)
    check_headers(response)


async def test_a_stream_without_a_session_makes_the_browser_give_up(serve: Serve) -> None:
    served = await serve(console=True)
    browser = Browser.of(served)
    assert (await browser.get(STREAM)).status_code == 204
    await browser.http.aclose()


async def test_a_page_that_updates_itself_is_notified_that_its_session_has_ended(serve: Serve) -> None:
    served = await serve(console=True)
    browser = Browser.of(served)
    response = await browser.get("/console/messages", headers={"HX-Request": "true"})
    assert response.status_code == 401
    check_headers(response)
    await browser.http.aclose()


async def test_a_failed_poll_ends_the_stream_and_an_unchanged_page_gets_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "RENDER_SECONDS", 0.001)
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.0)
    looks = iter(["same", "same", "same"])

    async def look() -> str:
        try:
            return next(looks)
        except StopIteration:
            raise OSError("the database is unreachable") from None

    slot = EventStreams().open("me", ())
    assert slot is not None
    async with asyncio.timeout(20):
        sent = [chunk.decode() async for chunk in PageWatch(slot, look, "same").chunks()]
    assert sent == ["retry: 2000\n\n", *[": keep-alive\nevent: beat\ndata: 1\n\n"] * 3]
