"""A number that moves: to another number, and between a terminal and a page."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from handset import errors
from handset.composing import Content
from handset.web.phones import OpenPhone
from tests.handset.business import Recorder
from tests.handset.conftest import LiveNetwork
from tests.handset.scripted import BUSINESS
from tests.handset.test_terminal import at_the_terminal
from tests.handset.test_terminal import settings_for as terminal_settings
from tests.handset.web.conftest import ADA, BOB, CHAT, Browser, Page, register, serving, settings_for
from tidings.client.errors import NetworkUnavailable

CLARA, DORA = "15550100003", "15550100004"


async def test_a_new_number_is_announced_to_all_others_when_one_number_is_no_longer_registered(
    browser: Browser, shop: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.send(ADA, "hello")
    await browser.until(CHAT, "hello")
    await register(browser, BOB)
    await browser.write(f"/handset/{BOB}/chats/{ADA}", "the newest chat")
    await browser.until(f"/handset/{ADA}/chats/{BOB}", "the newest chat")
    send = OpenPhone.send

    async def send_to_those_registered(phone: OpenPhone, chat: str, message: Content) -> str:
        if chat == BOB:
            raise errors.NoSuchNumber(f"{chat} is not registered")
        return await send(phone, chat, message)

    monkeypatch.setattr(OpenPhone, "send", send_to_those_registered)
    page = await browser.get(f"/handset/{ADA}/settings")
    form = next(form for form in page.root.all("form") if form.get("action").endswith("/move"))
    page = await browser.send(page, form, {"new_number": f"+{CLARA}"})
    assert page.url.endswith(f"/handset/{CLARA}"), page.text
    await shop.until(lambda: [m.type for m in shop.messages] == ["system"])


async def test_a_new_number_is_announced_once_to_each_although_the_network_was_away(
    browser: Browser, shop: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(browser, BOB)
    await browser.write(f"/handset/{BOB}/chats/{ADA}", "the older chat")
    await browser.until(f"/handset/{ADA}/chats/{BOB}", "the older chat")
    await shop.send(ADA, "hello")
    await browser.until(CHAT, "hello")
    send, announced = OpenPhone.send, list[str]()

    async def fail_at_the_second(phone: OpenPhone, chat: str, message: Content) -> str:
        announced.append(chat)
        if len(announced) == 2:
            raise NetworkUnavailable("the network did not respond")
        return await send(phone, chat, message)

    monkeypatch.setattr(OpenPhone, "send", fail_at_the_second)
    for _ in range(2):
        page = await browser.get(f"/handset/{ADA}/settings")
        form = next(form for form in page.root.all("form") if form.get("action").endswith("/move"))
        page = await browser.send(page, form, {"new_number": f"+{CLARA}"})
    assert page.url.endswith(f"/handset/{CLARA}"), page.text
    first, second = {BUSINESS, BOB} - {announced[1]}, announced[1]
    assert announced == [*first, second, second]


async def move(browser: Browser, number: str) -> Page:
    """Change Ada's number by the form, once her phone is open."""
    async with asyncio.timeout(60):
        while (page := await browser.get(f"/handset/{ADA}/settings")).status != 200:
            pass
    form = next(form for form in page.root.all("form") if form.get("action").endswith("/move"))
    return await browser.send(page, form, {"new_number": f"+{number}"})


async def test_a_new_number_is_announced_once_to_each_although_the_page_was_restarted(
    live_network: LiveNetwork, tmp_path: Path, shop: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, send, announced = settings_for(live_network, tmp_path / "data"), OpenPhone.send, list[str]()

    async def fail_at_the_second(phone: OpenPhone, chat: str, message: Content) -> str:
        announced.append(chat)
        if len(announced) == 2:
            raise NetworkUnavailable("the network did not answer")
        return await send(phone, chat, message)

    async with serving(settings) as pages, pages.browser() as browser:
        await register(browser, ADA)
        await register(browser, BOB)
        await browser.write(f"/handset/{BOB}/chats/{ADA}", "the older chat")
        await browser.until(f"/handset/{ADA}/chats/{BOB}", "the older chat")
        await shop.send(ADA, "hello")
        await browser.until(CHAT, "hello")
        monkeypatch.setattr(OpenPhone, "send", fail_at_the_second)
        assert (await move(browser, CLARA)).status == 503
    async with serving(settings) as pages, pages.browser() as browser:
        page = await move(browser, CLARA)
        assert page.url.endswith(f"/handset/{CLARA}"), page.text
        first, second = {BUSINESS, BOB} - {announced[1]}, announced[1]
        assert announced == [*first, second, second]
        # Another number is new to both, and so is the first one after it.
        for number in (DORA, CLARA):
            announced.clear()
            announced.extend(["counted", "counted"])
            assert (await move(browser, number)).url.endswith(f"/handset/{number}")
            assert sorted(announced[2:]) == [BUSINESS, BOB]


async def at_page_then_terminal(network: LiveNetwork, folder: Path, shop: Recorder) -> None:
    """Send from the page, then from the terminal."""
    async with serving(settings_for(network, folder)) as pages, pages.browser() as browser:
        await register(browser, ADA)
        await browser.write(CHAT, "from the page")
        await browser.until(CHAT, "✓ ?sent")
    async with at_the_terminal(terminal_settings(network, folder)) as ada:
        await ada.until("Connected")
        await shop.send(ADA, "read there")
        await ada.until("read there")
        ada.type("from the terminal")
        await shop.until(lambda: [m.text for m in shop.messages] == ["from the page", "from the terminal"])


async def test_messages_that_a_terminal_sent_in_between_are_not_shown_as_waiting(
    live_network: LiveNetwork, tmp_path: Path, shop: Recorder
) -> None:
    await at_page_then_terminal(live_network, tmp_path / "data", shop)
    async with serving(settings_for(live_network, tmp_path / "data")) as pages, pages.browser() as browser:
        page = await browser.until(CHAT, "from the terminal")
        assert page.last.one("span", class_="state").get("title") != "waiting to be sent"


async def test_messages_that_were_read_in_a_terminal_in_between_are_read_on_the_page(
    live_network: LiveNetwork, tmp_path: Path, shop: Recorder
) -> None:
    await at_page_then_terminal(live_network, tmp_path / "data", shop)
    async with serving(settings_for(live_network, tmp_path / "data")) as pages, pages.browser() as browser:
        await shop.send(ADA, "not yet read")
        async with asyncio.timeout(60):
            while "not yet read" not in (page := await browser.get(f"/handset/{ADA}")).text:
                pass
        assert page.root.one("span", class_="badge").text == "1 unread"
        assert "read there" in (await browser.until(CHAT, "not yet read")).text
