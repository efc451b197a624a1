"""Messages on the page: each type as it is shown, from a message that a business sent over a real network."""

from __future__ import annotations

from tests.handset.business import Recorder
from tests.handset.scripted import BUSINESS
from tests.handset.web.conftest import ADA, CHAT, Browser


async def test_a_message_is_shown_with_its_receipts_and_an_answer_arrives(browser: Browser, shop: Recorder) -> None:
    message = await shop.send(ADA, "Hello *Ada*")
    listed = await browser.until(f"/handset/{ADA}", r"Hello \*Ada\*")
    assert listed.root.one("span", class_="badge").text == "1 unread"
    await shop.until(lambda: shop.events(message) == ["delivered"])
    page = await browser.get(CHAT)
    assert page.last.one("div", class_="text").one("b").text == "Ada"
    await shop.until(lambda: shop.events(message) == ["delivered", "read"])
    answered = await browser.say(CHAT, "hello back")
    assert answered.last.one("div", class_="text").text == "hello back"
    await shop.until(lambda: [m.text for m in shop.messages] == ["hello back"])
    await browser.until(CHAT, "✓")
    assert not (await browser.get(f"/handset/{ADA}")).root.all("span", class_="badge")
    assert BUSINESS in CHAT
