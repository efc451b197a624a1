"""Chat of a number with itself, which has no session of its own."""

from __future__ import annotations

from tests.handset.web.conftest import ADA, Browser


async def test_a_message_to_the_own_number_is_refused_or_arrives(browser: Browser) -> None:
    path = f"/handset/{ADA}/chats/{ADA}"
    page = await browser.write(path, "note to myself")
    if page.status != 422:
        page = await browser.until(path, "✓✓|could not be decrypted")
        assert "could not be decrypted" not in page.text
