"""Console in a browser: its address, the login, and what tests and pictures do on its pages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from aiohttp import web
from playwright.async_api import BrowserContext, Locator, Page, expect

from harness.client import PASSWORD
from harness.installation import Installation
from tests.pages.browser.scene import Scene
from tests.web_server import serving


def address(installation: Installation) -> str:
    """Return the URL of the overview."""
    return f"http://127.0.0.1:{installation.api_port}/console"


async def log_in(installation: Installation, context: BrowserContext, password: str = PASSWORD) -> Page:
    """Open the console in a new tab, and log in as the administrator. Returns the tab."""
    page = await context.new_page()
    await page.goto(address(installation))
    await page.get_by_label("User").fill("admin")
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Log in").click()
    return page


async def enter(scene: Scene, context: BrowserContext) -> Page:
    """Log in as the administrator. Returns the tab, which shows the overview."""
    page = await log_in(scene.installation, context)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    return page


async def set_webhook(scene: Scene, page: Page, url: str, *, backoff: int) -> None:
    """Set the webhook on the page of settings.

    backoff: delay before each retry, milliseconds
    """
    await page.goto(f"{address(scene.installation)}/settings")
    await page.get_by_label("URL", exact=True).fill(url)
    await page.get_by_label("Delay before the n-th retry").fill(str(backoff))
    await page.get_by_label("Longest delay before a retry").fill(str(backoff))
    await page.locator("section", has=page.locator("#webhook")).get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Saved. Nothing restarts")).to_be_visible()


async def try_it(scene: Scene, page: Page, kind: str, number: str, fields: dict[str, str]) -> str:
    """Send a message of one type by its form. Returns its id.

    fields: values by label; others keep the value of the form
    """
    await page.goto(f"{address(scene.installation)}/try-it?type={kind}")
    await page.get_by_label("To", exact=True).fill(number)
    for label, value in fields.items():
        await page.get_by_label(label, exact=True).fill(value)
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.get_by_text("HTTP 201")).to_be_visible()
    link = await page.get_by_role("link", name="Follow its statuses and callbacks").get_attribute("href")
    assert link is not None
    return link.rpartition("/")[2]


def rows(page: Page, caption: str) -> Locator:
    """Return the rows of the table with this caption."""
    return page.get_by_role("table", name=caption).locator("tbody tr")


@contextlib.asynccontextmanager
async def broken_webhook() -> AsyncIterator[str]:
    """Run a webhook that fails. Yields its URL."""

    async def respond(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=500, text="down for maintenance")

    app = web.Application()
    app.router.add_post("/", respond)
    async with serving(app) as url:
        yield f"{url}/"
