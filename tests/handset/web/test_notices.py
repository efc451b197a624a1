"""Notices, which only the page itself makes."""

from __future__ import annotations

from tests.handset.business import Recorder
from tests.handset.scripted import BUSINESS
from tests.handset.web.conftest import ADA, CHAT, Browser


async def test_a_peer_cannot_break_the_page_with_a_notice(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    await shop.send(ADA, "Hello Ada")
    await browser.until(CHAT, "Hello Ada")
    await shop.fleet.send_content(BUSINESS, ADA, {"type": "notice", "numbers": 5})
    await shop.send(ADA, "Are you there?")
    # One notice may name several messages.
    await shop.until(lambda: sum(len(one.refs) for one in shop.notices if one.kind == "delivered") >= 3)
    for path in (f"/handset/{ADA}", CHAT):
        page = await browser.get(path)
        assert page.status == 200, path
