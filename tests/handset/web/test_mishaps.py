"""Pages after a mistake, on a full disk, and during changes by another tab."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from tests.handset.business import Recorder
from tests.handset.scripted import BUSINESS
from tests.handset.web.conftest import ADA, BOB, CHAT, Browser, register
from tests.handset.web.test_messages import PNG
from tidings.storage.database import Connection
from tidings.storage.handset import chats
from tidings.storage.handset.chats import ChatSummary


async def test_the_links_of_a_chat_that_shows_a_mistake_are_served(browser: Browser, shop: Recorder) -> None:
    await shop.send(ADA, "hello")
    await browser.until(CHAT, "hello")
    page = await browser.write(CHAT, "")
    assert page.status == 422
    (answer,) = [link for link in page.last.all("a") if link.text == "Answer"]
    page = await browser.get(urljoin(page.url, answer.get("href")))
    assert (page.status, "Answer to" in page.text) == (200, True)


async def test_no_reply_forward_or_reaction_uses_a_message_of_another_chat(browser: Browser, shop: Recorder) -> None:
    await shop.send(ADA, "hello")
    page = await browser.until(CHAT, "hello")
    (answer,) = [link for link in page.last.all("a") if link.text == "Answer"]
    assert "Answer to" in (await browser.get(urljoin(page.url, answer.get("href")))).text
    other = f"/handset/{ADA}/chats/{BOB}"
    position = answer.get("href").partition("answer=")[2].partition("#")[0]
    assert position.isdigit()
    assert "Answer to" not in (await browser.get(f"{other}?answer={position}")).text
    for chat, status in ((CHAT, 200), (other, 404)):
        assert (await browser.get(f"{chat}/forward/{position}")).status == status
    form = (await browser.get(other)).root.one("form", id="composer")
    values = {field.get("name"): field.get("value") for field in form.all("input") if field.get("type") == "hidden"}
    response = await browser.client.post(f"{other}/act", data={**values, "do": f"react {position} X"})
    assert response.status_code == 404


async def test_the_list_of_numbers_is_shown_while_another_tab_closes_one(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(browser, BOB)
    page = await browser.get("/handset")
    button = page.root.one("ul", class_="phones").all("button")[-1]
    list_chats = chats.list_chats

    async def list_slowly(connection: Connection, number: str, limit: int) -> list[ChatSummary]:
        monkeypatch.setattr(chats, "list_chats", list_chats)
        await browser.press(page, button)
        return await list_chats(connection, number, limit)

    monkeypatch.setattr(chats, "list_chats", list_slowly)
    assert (await browser.get("/handset")).status == 200


async def test_a_file_that_the_full_disk_does_not_take_is_refused_with_the_typed_words_kept(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    page = await browser.get(CHAT)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    form = page.root.one("form", id="composer")
    page = await browser.send(page, form, {"text": "a cat"}, files={"file": ("cat.png", PNG)})
    assert page.status in (413, 422, 503, 507)
    assert page.root.one("textarea").text == "a cat"


async def test_an_upload_on_a_full_disk_for_temporary_files_gets_an_error_page(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = await browser.get(CHAT)
    # Files of forms beyond 1 MB are on disk.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    form = page.root.one("form", id="composer")
    page = await browser.send(page, form, {"text": "a cat"}, files={"file": ("cat.png", PNG * 1000)})
    assert page.status in (413, 422, 503, 507)
    assert page.root.one("p", class_="problem").text


async def test_the_effect_of_a_tap_is_shown_without_marks_of_direction(browser: Browser, shop: Recorder) -> None:
    assert shop.fleet is not None
    url = "https://example.com/\u202egpj.exe"
    parameters = {"display_text": "See", "url": url}
    action = {"name": "cta_url", "parameters": parameters}
    content = {"type": "interactive", "interactive": {"type": "cta_url", "body": {"text": "x"}, "action": action}}
    await shop.fleet.send_content(BUSINESS, ADA, content)
    page = await browser.until(CHAT, "See")
    page = await browser.press(page, page.last.one("button", class_="choice"))
    assert "browser would open" in page.root.all("p", class_="note")[0].text
    assert "\u202e" not in page.response.text
