"""Page with handsets in a browser: what is within the window, stays in place, and is reached by the keyboard."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, Route, expect

from tests.pages.browser import axe
from tests.pages.browser.chromium import FOCUS, Contexts
from tests.pages.browser.handset_pages import HOSTILE, last, messages, open_chat, type_message
from tests.pages.browser.pictures import sunset
from tests.pages.browser.scene import ACCOUNT, Scene


async def test_an_opened_chat_stays_at_its_end_while_pictures_load(handsets: Scene, page: Page) -> None:
    number = await handsets.register(page)
    picture = await handsets.upload(sunset(), "image/png")
    for _ in range(3):
        await handsets.send(number, {"type": "image", "image": {"id": picture}})
    await handsets.statuses(await handsets.say(number, "the end"), "delivered")
    is_loading = asyncio.Event()

    async def load(route: Route) -> None:
        await is_loading.wait()
        await route.continue_()

    await page.route("**/files/**", load)
    await page.goto(f"{handsets.chat(number)}#end", wait_until="domcontentloaded")
    await expect(last(page)).to_be_in_viewport(ratio=1)
    is_loading.set()
    for each in await page.locator("figure.image img").all():
        await each.evaluate("each => { each.loading = 'eager'; return each.decode(); }")
    await expect(last(page)).to_be_in_viewport(ratio=1)
    # A reader of earlier messages stays there.
    scroll = page.locator(".scroll")
    await scroll.evaluate("each => { each.scrollTop = 0; }")
    await handsets.say(number, "one more")
    await expect(messages(page)).to_have_count(5)
    assert await scroll.evaluate("each => each.scrollTop") == 0


@pytest.mark.parametrize("width", [320, 720, 1024, 1280])
async def test_the_options_of_wide_messages_are_within_the_window(
    handsets: Scene, contexts: Contexts, width: int
) -> None:
    context, _ = await contexts.open(storage_state=handsets.session, viewport={"width": width, "height": 800})
    page = await context.new_page()
    number = await open_chat(handsets, page)
    for each in ("short", "wide " * 60):
        await handsets.say(number, each)
        await expect(last(page)).to_contain_text(each.strip())
        await type_message(page, each)
        await expect(page.locator("#messages > .message.own").last).to_contain_text(each.strip())
    await expect(messages(page)).to_have_count(4)
    for message in await messages(page).all():
        await message.locator(".menu > summary").click()
        for control in await message.locator(".panel > a, .panel button").all():
            await expect(control).to_be_in_viewport(ratio=0.99)
        await page.keyboard.press("Escape")


async def test_a_long_name_leaves_the_time_of_a_chat_on_one_line(handsets: Scene, page: Page) -> None:
    await handsets.register(page)
    await page.get_by_role("link", name="New chat or group").click()
    await page.get_by_label("Subject").fill("Deliveries for the north of the city and for all of its suburbs")
    await page.get_by_role("button", name="Create").click()
    time = page.locator(".chats small")
    await expect(time).to_have_text(re.compile(r"\d\d:\d\d"))
    box = await time.bounding_box()
    assert box is not None
    assert box["height"] < 30


# Accessibility.

PATHS = (
    "",
    "/{number}",
    "/{number}/settings",
    "/{number}/new",
    "{chat}",
    "{chat}?answer=1",
    "{chat}/more",
    "{chat}/info",
)


def urls(handsets: Scene, number: str) -> list[str]:
    """Return the URLs of the pages of a number."""
    chat = f"/{number}/chats/{ACCOUNT}"
    return [f"{handsets.handset_url}{path.format(number=number, chat=chat)}" for path in (*PATHS, "{chat}/forward/1")]


async def filled_chat(handsets: Scene, page: Page) -> str:
    """Register a number whose chat has several types of messages. Returns the number."""
    number = await open_chat(handsets, page)
    await handsets.send(number, {"type": "image", "image": {"id": handsets.picture, "caption": "A *cat*"}})
    for file, case in (("interactive", "list"), ("template", "cards"), ("template", "order"), ("location", "full")):
        await handsets.example(number, file, case)
    await handsets.say(number, HOSTILE + "x" * 300)
    await expect(messages(page)).to_have_count(6)
    await last(page).locator(".menu > summary").click()
    await last(page).get_by_role("button", name="👍").click()
    await type_message(page, "An answer")
    await expect(messages(page)).to_have_count(7)
    return number


async def test_axe_finds_nothing_on_any_page(handsets: Scene, contexts: Contexts) -> None:
    context, watch = await contexts.open(storage_state=handsets.session, bypass_csp=True)
    page = await context.new_page()
    number = await filled_chat(handsets, page)
    for url in urls(handsets, number):
        await page.goto(url)
        assert await axe.violations(page) == [], url
    watch.allow("status of (403|404)")
    await page.goto(f"{handsets.handset_url}/nowhere/at/all")
    assert await axe.violations(page) == []
    await page.goto(f"{handsets.handset_url}/{number}/chats/{ACCOUNT}")
    await last(page).locator(".menu > summary").click()
    await expect(last(page).locator(".panel")).to_be_visible()
    assert await axe.violations(page) == []
    await page.locator("details.attach > summary").click()
    await expect(page.get_by_label("File", exact=True)).to_be_visible()
    assert await axe.violations(page) == []
    await page.goto(handsets.handset_url)
    await page.get_by_role("button", name="Make a link").click()
    assert await axe.violations(page) == []
    link = await page.locator("code").inner_text()
    unauthenticated, watch = await contexts.open(bypass_csp=True)
    watch.allow("status of 403")
    page = await unauthenticated.new_page()
    for url in (link, handsets.handset_url):
        await page.goto(url)
        assert await axe.violations(page) == [], url


@pytest.mark.parametrize("width", [320, 1280])
async def test_no_page_scrolls_sideways(handsets: Scene, contexts: Contexts, width: int) -> None:
    """320 px are also a page of 1280 px at 400 %, whose height is then 256 px."""
    context, _ = await contexts.open(
        storage_state=handsets.session, viewport={"width": width, "height": width * 4 // 5}
    )
    page = await context.new_page()
    number = await filled_chat(handsets, page)
    for url in urls(handsets, number):
        await page.goto(url)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, url
        cut = await page.evaluate(
            """() => [...document.querySelectorAll("a, button, input, textarea, select, summary, h1, h2, h3, p, label")]
              .filter(each => !each.closest(".cards, .numbers, .hidden-words, .skip, .attach:not([open]) .panel")
                && each.checkVisibility({visibilityProperty: true})
                && !each.matches(".hidden-words, .hidden-words *, .skip"))
              .filter(each => each.getBoundingClientRect().right > innerWidth + 1)
              .map(each => each.outerHTML.slice(0, 120))"""
        )
        assert cut == [], url


async def test_the_keyboard_alone_is_enough_and_the_focus_is_visible(handsets: Scene, page: Page) -> None:
    number = await filled_chat(handsets, page)
    await page.goto(f"{handsets.handset_url}/{number}")
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()
    for url in urls(handsets, number):
        await page.goto(url)
        await page.locator("body").evaluate("() => document.activeElement.blur()")
        seen: list[str] = []
        for _ in range(60):
            await page.keyboard.press("Tab")
            focus = await page.evaluate(FOCUS)
            if not focus["name"] or await page.evaluate("document.activeElement === document.body"):
                break
            assert focus["outline"], (url, focus)
            assert focus["shown"], (url, focus)
            seen.append(focus["name"])
        assert len(seen) > 4, url
    await page.goto(f"{handsets.chat(number)}#end")
    await expect(page.get_by_label("Message", exact=True)).to_be_focused()
    await page.keyboard.type("by the keyboard")
    await page.keyboard.press("Enter")
    await expect(last(page)).to_contain_text("by the keyboard")
    # The menu of the last message is before the field, after the area that scrolls.
    await last(page).locator("summary").focus()
    await page.keyboard.press("Enter")
    await expect(last(page).get_by_role("button", name="Delete for everyone")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(last(page).get_by_role("button", name="Delete for everyone")).to_be_hidden()
    await expect(last(page).locator("summary")).to_be_focused()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(last(page).locator(".reactions")).to_contain_text("👍")
