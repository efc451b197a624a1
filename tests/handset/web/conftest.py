"""Process with pages on a real network, a business that writes to it, and a browser without JavaScript."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from handset.settings import WebSettings
from handset.web.services import PageAddress, run_web
from tests import migrated
from tests.handset.business import Recorder, business
from tests.handset.conftest import SECRETS, LiveNetwork
from tests.handset.scripted import BUSINESS
from tests.pages import document
from tests.pages.document import Element
from tidings.installation.settings import DatabaseSettings

ADA = "15550100001"
BOB = "15550100002"
CHAT = f"/handset/{ADA}/chats/{BUSINESS}"


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """Page that a browser shows."""

    response: httpx.Response
    root: Element

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def url(self) -> str:
        return str(self.response.url)

    @property
    def text(self) -> str:
        return self.root.text

    @property
    def messages(self) -> list[Element]:
        return self.root.all("li", class_="message")

    @property
    def last(self) -> Element:
        return self.messages[-1]


class Browser:
    """Browser without JavaScript: follows links, fills in forms, presses buttons."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str) -> Page:
        return self._page(await self.client.get(path))

    async def send(
        self, page: Page, form: Element, values: dict[str, str], *, press: Element | None = None, files: Any = None
    ) -> Page:
        """Send a form with its hidden and preset fields, these values, and the pressed button."""
        data: dict[str, str] = {}
        for field in form.walk():
            preset = field.tag in ("input", "textarea") and field.get("type") not in ("checkbox", "file")
            if preset and field.get("name"):
                data[field.get("name")] = field.get("value") or field.text
            if field.tag == "select":
                data[field.get("name")] = field.all("option")[0].get("value")
            if field.get("type") == "checkbox" and "checked" in field.attributes:
                data[field.get("name")] = field.get("value")
        data |= values
        if press is not None:
            data[press.get("name")] = press.get("value")
        url = urljoin(page.url, form.get("action"))
        return self._page(await self.client.post(url, data=data, files=files))

    async def press(self, page: Page, button: Element) -> Page:
        """Press a button that sends the form around it or the form that it names."""
        named = button.get("form")
        form = page.root.one("form", id=named) if named else next(e for e in button.above() if e.tag == "form")
        return await self.send(page, form, {}, press=button if button.get("name") else None)

    async def write(self, path: str, text: str, **more: str) -> Page:
        """Type a message into a chat, and send it."""
        page = await self.get(path)
        return await self.send(page, page.root.one("form", id="composer"), {"text": text, **more})

    async def until(self, path: str, pattern: str, count: int = 1) -> Page:
        """Load a page again and again until it has a text: a chat itself, not the list of chats that it also shows."""
        async with asyncio.timeout(30):
            while True:
                page = await self.get(path)
                text = page.root.one("main").text if "/chats/" in path else page.text
                if len(re.findall(pattern, text)) >= count:
                    return page
                await asyncio.sleep(0.02)

    @staticmethod
    def _page(response: httpx.Response) -> Page:
        is_page = response.headers.get("content-type", "").startswith("text/html")
        return Page(response, document.parse(response.text) if is_page else Element("", {}, None))


@dataclasses.dataclass(slots=True)
class Pages:
    """Process with pages."""

    address: PageAddress
    stop: asyncio.Event
    task: asyncio.Task[None]

    @property
    def origin(self) -> str:
        parts = urlsplit(self.address.url)
        return f"{parts.scheme}://{parts.netloc}"

    @contextlib.asynccontextmanager
    async def unauthenticated(self) -> AsyncIterator[Browser]:
        """Run a browser that has not entered."""
        async with httpx.AsyncClient(base_url=self.origin, follow_redirects=True, verify=False, timeout=30) as client:
            yield Browser(client)

    @contextlib.asynccontextmanager
    async def browser(self, link: str = "") -> AsyncIterator[Browser]:
        """Run a browser that has entered by the link."""
        async with self.unauthenticated() as browser:
            page = await browser.get(link or self.address.link)
            entered = await browser.send(page, page.root.one("form"), {})
            assert entered.status == 200, entered.text
            yield browser


def settings_for(network: LiveNetwork, folder: Path, **changes: Any) -> WebSettings:
    folder.mkdir(exist_ok=True)
    return WebSettings(
        **{
            "data_dir": folder,
            "database": DatabaseSettings(f"sqlite+aiosqlite:///{folder / 'handset.db'}", pool_size=3),
            "secrets": SECRETS,
            "http_url": network.http_url,
            "address": ("127.0.0.1", 0),
            **changes,
        }
    )


@contextlib.asynccontextmanager
async def serving(settings: WebSettings) -> AsyncIterator[Pages]:
    """Run the process with pages."""
    stop: asyncio.Event = asyncio.Event()
    found: asyncio.Future[PageAddress] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run_web(settings, stop, found.set_result))
    waiting: list[asyncio.Future[Any]] = [task, found]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=30)
    if task.done():
        await task
    try:
        yield Pages(found.result(), stop, task)
    finally:
        stop.set()
        await task


@pytest.fixture
async def pages(live_network: LiveNetwork, tmp_path: Path) -> AsyncIterator[Pages]:
    settings = settings_for(live_network, tmp_path / "pages")
    await migrated.create_sqlite(settings.data_dir / "handset.db", "handset")
    async with serving(settings) as pages:
        yield pages


@pytest.fixture
async def browser(pages: Pages) -> AsyncIterator[Browser]:
    """Browser that has entered, with Ada's phone open."""
    async with pages.browser() as browser:
        await register(browser, ADA)
        yield browser


@pytest.fixture
async def shop(live_network: LiveNetwork, tmp_path: Path) -> AsyncIterator[Recorder]:
    """Business that is logged in."""
    async with business(live_network, tmp_path) as shop:
        yield shop


def registration_form(page: Page) -> Element:
    """Return the form that registers a number, in the list of phones."""
    return next(form for form in page.root.all("form") if form.all("input", name="name"))


async def register(browser: Browser, number: str) -> Page:
    """Register a number by the form."""
    page = await browser.get("/handset")
    done = await browser.send(page, registration_form(page), {"number": f"+{number}", "name": "Ada"})
    assert done.url.endswith(f"/handset/{number}"), done.text
    return done
