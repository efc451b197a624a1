"""The console in a browser: its pages, accessibility, and the way from a failing webhook to a message that arrives."""

from __future__ import annotations

import pytest
from playwright.async_api import BrowserContext, Page, expect

from harness.client import PASSWORD
from tests.pages.browser import axe
from tests.pages.browser.chromium import Contexts
from tests.pages.browser.scene import Scene

PATHS = (
    "",
    "/messages",
    "/callbacks",
    "/callbacks?status=given+up",
    "/callbacks/audit",
    "/callbacks/signature",
    "/callbacks/change?action=replay",
    "/codes",
    "/templates",
    "/templates/new",
    "/try-it",
    "/settings",
    "/faults",
)


def console(scene: Scene) -> str:
    return f"http://127.0.0.1:{scene.installation.api_port}/console"


async def enter(scene: Scene, context: BrowserContext) -> Page:
    """Log in as the administrator. Returns the tab, which shows the overview."""
    page = await context.new_page()
    await page.goto(console(scene))
    await page.get_by_label("User").fill("admin")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_on_any_page_of_the_console(scene: Scene, contexts: Contexts, scheme: str) -> None:
    context, _ = await contexts.open(bypass_csp=True, color_scheme=scheme)
    login = await context.new_page()
    await login.goto(console(scene))
    assert await axe.violations(login) == []
    page = await enter(scene, context)
    for path in PATHS:
        await page.goto(f"{console(scene)}{path}")
        assert await axe.violations(page) == [], path


async def test_no_page_of_the_console_scrolls_sideways_at_320_pixels(scene: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(viewport={"width": 320, "height": 256})
    page = await enter(scene, context)
    for path in PATHS:
        await page.goto(f"{console(scene)}{path}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320, path


async def test_without_scripts_every_page_is_read_and_a_form_is_sent(scene: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(java_script_enabled=False)
    page = await enter(scene, context)
    for path in PATHS:
        response = await page.goto(f"{console(scene)}{path}")
        assert response is not None
        assert response.status == 200, path
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Password")).to_be_visible()
