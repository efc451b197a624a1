"""Pages of the console in a browser: accessibility, narrow windows, and use without scripts."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from tests.pages.browser import axe
from tests.pages.browser.chromium import Contexts
from tests.pages.browser.console_pages import address, enter
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
    "/settings/application",
    "/settings/certificates",
    "/settings/media",
    "/settings/profile",
    "/faults",
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_on_any_page_of_the_console(scene: Scene, contexts: Contexts, scheme: str) -> None:
    context, _ = await contexts.open(bypass_csp=True, color_scheme=scheme)
    login = await context.new_page()
    await login.goto(address(scene.installation))
    assert await axe.violations(login) == []
    page = await enter(scene, context)
    for path in PATHS:
        await page.goto(f"{address(scene.installation)}{path}")
        assert await axe.violations(page) == [], path


async def test_no_page_of_the_console_scrolls_sideways_at_320_pixels(scene: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(viewport={"width": 320, "height": 256})
    page = await enter(scene, context)
    for path in PATHS:
        await page.goto(f"{address(scene.installation)}{path}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320, path


async def test_without_scripts_every_page_is_read_and_a_form_is_sent(scene: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(java_script_enabled=False)
    page = await enter(scene, context)
    for path in PATHS:
        response = await page.goto(f"{address(scene.installation)}{path}")
        assert response is not None
        assert response.status == 200, path
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Password")).to_be_visible()
