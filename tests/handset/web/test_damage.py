"""Pages of a phone with one damaged row in its store."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from tests.handset.business import Recorder
from tests.handset.conftest import LiveNetwork
from tests.handset.test_terminal import at_the_terminal
from tests.handset.test_terminal import settings_for as terminal_settings
from tests.handset.web.conftest import ADA, BOB, CHAT, Browser, register, serving, settings_for


def damage(path: Path, table: str) -> None:
    """Damage the sealed contents of a table."""
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE {table} SET content = substr(content, 1, length(content) - 8) || 'AAAAAAAA'")


async def test_a_chat_with_one_damaged_message_shows_the_others(
    browser: Browser, shop: Recorder, tmp_path: Path
) -> None:
    await shop.send(ADA, "one")
    await browser.until(CHAT, "one")
    damage(tmp_path / "pages" / "handset.db", "handset_chat_items")
    await shop.send(ADA, "two")
    await browser.until(f"/handset/{ADA}", "two")
    page = await browser.get(CHAT)
    assert (page.status, "two" in page.root.one("main").text) == (200, True)


async def test_a_damaged_newest_message_does_not_close_all_other_chats(
    browser: Browser, shop: Recorder, tmp_path: Path
) -> None:
    await shop.send(ADA, "one")
    await browser.until(CHAT, "one")
    damage(tmp_path / "pages" / "handset.db", "handset_chat_items")
    assert (await browser.get(f"/handset/{ADA}")).status == 200
    assert (await browser.get(f"/handset/{ADA}/chats/{BOB}")).status == 200


async def test_a_damaged_row_of_the_inbox_does_not_stop_the_phone(
    live_network: LiveNetwork, tmp_path: Path, shop: Recorder
) -> None:
    async with at_the_terminal(terminal_settings(live_network, tmp_path / "data")) as ada:
        await ada.until("Connected")
        await shop.send(ADA, "one")
        await ada.until("one")
    damage(tmp_path / "data" / "handset.db", "handset_inbox")
    async with serving(settings_for(live_network, tmp_path / "data")) as pages, pages.browser() as browser:
        await register(browser, ADA)
        await shop.send(ADA, "two")
        page = await browser.until(f"/handset/{ADA}", "two|has stopped")
        assert "has stopped" not in page.text
