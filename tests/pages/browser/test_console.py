"""Pages of the console in a browser: accessibility, narrow windows, and use without scripts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from playwright.async_api import Page, expect

from tests.pages.browser import axe
from tests.pages.browser.chromium import FOCUS, Contexts
from tests.pages.browser.console_pages import address, enter, rows
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

ROBOT = "15550140000"
# Words of table cells that are shown on two lines. Longer ones may be.
BROKEN_WORDS = """() => [...document.querySelectorAll("tbody th, tbody td")].flatMap(cell => {
  const found = [], texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[^\\s-]+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(box => box.top));
      if (word[0].length < 17 && lines.size > 1) found.push(word[0]);
    }
  }
  return found;
})"""
# Inputs for a time that are narrower than what they show.
CUT_TIMES = """() => [...document.querySelectorAll("input[type=datetime-local]")].filter(each => {
  const shown = each.offsetWidth;
  each.style.width = "max-content";
  const needed = each.offsetWidth;
  each.style.width = "";
  return shown < needed;
}).length"""


async def details(scene: Scene, page: Page) -> Sequence[str]:
    """Return the paths of pages about a message sent, one received, a callback and a template."""
    message = await scene.say(ROBOT, "Details?")
    await scene.statuses(message, "read")
    received = (await scene.inbound(ROBOT))[-1]["id"]
    await page.goto(f"{address(scene.installation)}/callbacks?status=done&id={message}")
    callback = await rows(page, "Callbacks, newest first").get_by_role("link").first.get_attribute("href")
    await page.goto(f"{address(scene.installation)}/templates")
    template = await rows(page, "Templates of the number").get_by_role("link").first.get_attribute("href")
    found = (f"/messages/{message}", f"/messages/{received}", callback or "", template or "")
    return [path.removeprefix("/console") for path in found]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_on_any_page_of_the_console(scene: Scene, contexts: Contexts, scheme: str) -> None:
    context, _ = await contexts.open(bypass_csp=True, color_scheme=scheme)
    login = await context.new_page()
    await login.goto(address(scene.installation))
    assert await axe.violations(login) == []
    page = await enter(scene, context)
    for path in (*PATHS, *await details(scene, page)):
        await page.goto(f"{address(scene.installation)}{path}")
        assert await axe.violations(page) == [], path


async def test_no_page_of_the_console_scrolls_sideways_at_320_pixels(scene: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(viewport={"width": 320, "height": 256})
    page = await enter(scene, context)
    for path in (*PATHS, *await details(scene, page)):
        await page.goto(f"{address(scene.installation)}{path}")
        assert await page.evaluate("document.documentElement.scrollWidth") <= 320, path


async def test_the_keyboard_reaches_each_control_of_the_console_and_the_focus_is_visible(
    scene: Scene, contexts: Contexts
) -> None:
    context, _ = await contexts.open()
    page = await enter(scene, context)
    for path in (*PATHS, *await details(scene, page)):
        await page.goto(f"{address(scene.installation)}{path}")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("#main")).to_be_focused()
        for _ in range(40):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement === document.body"):
                break
            focus = await page.evaluate(FOCUS)
            assert focus["outline"], (path, focus)
            assert focus["shown"], (path, focus)


async def test_without_scripts_every_page_is_read_and_a_form_is_sent(scene: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(java_script_enabled=False)
    page = await enter(scene, context)
    for path in PATHS:
        response = await page.goto(f"{address(scene.installation)}{path}")
        assert response is not None
        assert response.status == 200, path
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Password")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1100, 1280])
async def test_tables_break_no_words_and_fields_for_times_are_not_cut(
    scene: Scene, contexts: Contexts, width: int
) -> None:
    context, _ = await contexts.open(viewport={"width": width, "height": 800})
    page = await enter(scene, context)
    message = await scene.say(ROBOT, "Is a word broken?")
    await scene.inbound(ROBOT)
    await scene.statuses(message, "read")
    for path in (*PATHS, f"/messages/{message}", f"/callbacks?recipient={ROBOT}"):
        await page.goto(f"{address(scene.installation)}{path}")
        assert await page.evaluate(BROKEN_WORDS) == [], path
        assert await page.evaluate(CUT_TIMES) == 0, path
    await expect(rows(page, "Callbacks, newest first").first).to_be_visible()


async def test_the_words_of_the_chart_are_readable_on_a_phone(scene: Scene, contexts: Contexts) -> None:
    context, _ = await contexts.open(viewport={"width": 390, "height": 844})
    page = await enter(scene, context)
    labels = page.locator(".chart text")
    await expect(labels.first).to_be_visible()
    boxes = [await label.bounding_box() for label in await labels.all()]
    found = sorted((box["y"], box["x"], box["width"], box["height"]) for box in boxes if box is not None)
    assert found[0][3] >= 10
    assert all(x >= 0 and x + width <= 390 for _, x, width, _ in found)
    # The values of the scale do not overlap.
    scale = [box for box in found if box[1] < 60]
    assert all(after[0] - before[0] >= 10 for before, after in itertools.pairwise(scale)), scale
