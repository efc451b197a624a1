"""Pages after a mistake, on a full disk, and during changes by another tab."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from handset.web import numbers
from tests.handset.business import Recorder
from tests.handset.conftest import LiveNetwork
from tests.handset.scripted import BUSINESS
from tests.handset.test_terminal import at_the_terminal
from tests.handset.test_terminal import settings_for as terminal_settings
from tests.handset.web.conftest import ADA, BOB, CHAT, Browser, Pages, register, serving, settings_for
from tests.handset.web.test_messages import PNG
from tidings.storage.database import Connection
from tidings.storage.handset import chats
from tidings.storage.handset.chats import ChatSummary


async def test_the_links_of_a_chat_that_shows_a_mistake_answer(browser: Browser, shop: Recorder) -> None:
    await shop.send(ADA, "hello")
    await browser.until(CHAT, "hello")
    page = await browser.write(CHAT, "")
    assert page.status == 422
    (answer,) = [link for link in page.last.all("a") if link.text == "Answer"]
    page = await browser.get(urljoin(page.url, answer.get("href")))
    assert (page.status, "Answer to" in page.text) == (200, True)


async def test_the_list_of_numbers_is_shown_while_another_tab_closes_one(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(browser, BOB)
    page = await browser.get("/handset")
    button = page.root.one("ul", class_="phones").all("button")[-1]
    list_chats = chats.list_chats

    async def list_slowly(connection: Connection, number: str, limit: int) -> list[ChatSummary]:
        monkeypatch.setattr(numbers.chats, "list_chats", list_chats)
        await browser.press(page, button)
        return await list_chats(connection, number, limit)

    monkeypatch.setattr(numbers.chats, "list_chats", list_slowly)
    assert (await browser.get("/handset")).status == 200
