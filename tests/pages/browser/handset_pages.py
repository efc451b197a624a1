"""Chats of a handset in a browser: what tests do and look for on their pages."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Locator, Page, expect

from tests.pages.browser.scene import Scene

HOSTILE = "<script>alert(1)</script> \u202eevil\u202c " + "😀" * 60 + " zero\u200bwidth <img src=x onerror=alert(2)>"


def messages(page: Page) -> Locator:
    return page.locator("#messages > .message")


def last(page: Page) -> Locator:
    return messages(page).last


async def open_chat(handsets: Scene, page: Page, **how: Any) -> str:
    """Register a number, and show its chat with the business. Returns the number."""
    number = await handsets.register(page, **how)
    await page.goto(f"{handsets.chat(number)}#end")
    await expect(page.get_by_text("No messages yet")).to_be_visible()
    return number


async def type_message(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.get_by_role("button", name="Send", exact=True).click()


async def show_types(page: Page) -> None:
    """Open the page with the forms of other types."""
    await page.locator("details.attach > summary").click()
    await page.get_by_role("link", name="Location, contact, order and other types").click()
