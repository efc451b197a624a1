"""Phones of the page: several side by side, registration, switching off, receipts, blocking, and restarts."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import re
import sqlite3
from pathlib import Path
from unittest import mock

import pytest

from handset.devices.prekey_rotation import PreKeyRotation
from harness.mariadb import free_port
from tests import migrated
from tests.handset.business import Recorder
from tests.handset.conftest import COMPANY, SECRETS, LiveNetwork
from tests.handset.scripted import BUSINESS
from tests.handset.test_terminal import at_the_terminal
from tests.handset.test_terminal import settings_for as terminal_settings
from tests.handset.web.conftest import (
    ADA,
    BOB,
    CHAT,
    Browser,
    Pages,
    register,
    registration_form,
    serving,
    settings_for,
)
from tests.pages import document
from tidings.client.errors import NetworkTimeout
from tidings.client.http import NetworkApi
from tidings.storage.handset import prekeys
from tidings.wire.registration import DeviceRegistration

CLARA = "15550100003"


async def test_several_numbers_run_side_by_side(browser: Browser, shop: Recorder) -> None:
    await register(browser, BOB)
    for number in (ADA, BOB):
        await shop.send(number, f"to {number}")
    for number in (ADA, BOB):
        page = await browser.until(f"/handset/{number}/chats/{BUSINESS}", f"to {number}")
        assert [m.one("div", class_="text").text for m in page.messages] == [f"to {number}"]
        links = page.root.one("nav", class_="numbers").all("a")
        assert [link.text for link in links] == [f"+{ADA}", f"+{BOB}"]
        assert [link.text for link in links if link.get("aria-current")] == [f"+{number}"]
    page = await browser.get("/handset")
    assert document.faults(page.response.text) == []


async def test_a_registration_that_waits_for_the_network_does_not_delay_other_numbers(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested, answer, call = asyncio.Event(), asyncio.Event(), NetworkApi.register

    async def answer_late(api: NetworkApi, device: DeviceRegistration, *, registration_key: str = "") -> str:
        if device.number == BOB:
            requested.set()
            await answer.wait()
        return await call(api, device, registration_key=registration_key)

    monkeypatch.setattr(NetworkApi, "register", answer_late)
    async with asyncio.timeout(60):
        waiting = asyncio.create_task(register(browser, BOB))
        await requested.wait()
        await register(browser, CLARA)
        page = await browser.get("/handset")
        await browser.press(page, page.root.one("ul", class_="phones").all("button")[-1])
        assert not waiting.done()
        answer.set()
        await waiting


@pytest.mark.parametrize("number", ["", "five", "123", "+1" * 20])
async def test_an_invalid_number_is_refused(browser: Browser, number: str) -> None:
    page = await browser.get("/handset")
    page = await browser.send(page, registration_form(page), {"number": number})
    assert (page.status, page.root.one("p", class_="problem").text) == (
        422,
        "A phone number has 7 to 15 digits, such as +15550100001.",
    )


async def test_a_number_is_registered_by_code_without_a_registration_key(
    live_network: LiveNetwork, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    secrets = dataclasses.replace(SECRETS, registration_key="")
    async with (
        serving(settings_for(live_network, tmp_path / "pages", secrets=secrets)) as pages,
        pages.browser() as browser,
    ):
        page = await browser.get("/handset")
        page = await browser.send(page, page.root.all("form")[0], {"number": ADA})
        assert page.root.one("p", class_="problem").text.startswith("The network has printed a code")
        form = next(form for form in page.root.all("form") if form.all("input", name="code"))
        page = await browser.send(page, form, {"code": "000000"})
        assert page.status == 422
        code = next(record.code for record in caplog.records if record.getMessage() == "code.issued")  # type: ignore[attr-defined]
        form = next(form for form in page.root.all("form") if form.all("input", name="code"))
        page = await browser.send(page, form, {"code": code})
        assert page.url.endswith(f"/handset/{ADA}"), page.text


async def test_a_number_of_a_business_is_refused(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with serving(settings_for(live_network, tmp_path / "pages")) as pages, pages.browser() as browser:
        page = await browser.get("/handset")
        page = await browser.send(page, page.root.all("form")[0], {"number": f"+{COMPANY}"})
        assert page.status == 422
        assert page.root.one("p", class_="problem").text == (
            f"+{COMPANY} is a business's number, which its Coreapp registers with the registration key."
        )
        assert not [form for form in page.root.all("form") if form.all("input", name="code")]


async def test_chats_and_sessions_survive_a_restart(live_network: LiveNetwork, tmp_path: Path, shop: Recorder) -> None:
    settings = settings_for(live_network, tmp_path / "pages", address=("127.0.0.1", free_port()))
    async with serving(settings) as pages, pages.browser() as browser:
        await register(browser, ADA)
        await shop.send(ADA, "one")
        await browser.until(CHAT, "one")
        await browser.write(CHAT, "mine")
        await shop.until(lambda: len(shop.messages) == 1)
        await browser.until(CHAT, "✓ ?sent")
        cookies = dict(browser.client.cookies)
    await shop.send(ADA, "two")
    async with serving(settings) as pages, pages.unauthenticated() as browser:
        browser.client.cookies.update(cookies)
        page = await browser.until(CHAT, r"\btwo\b")
        assert [m.one("div", class_="text").text for m in page.messages] == ["one", "mine", "two"]
        await browser.write(CHAT, "still here")
        await shop.until(lambda: [m.text for m in shop.messages] == ["mine", "still here"])


async def test_a_phone_that_is_switched_off_gets_its_messages_later(browser: Browser, shop: Recorder) -> None:
    settings = f"/handset/{ADA}/settings"
    await shop.send(ADA, "hello")
    await browser.until(CHAT, "hello")
    page = await browser.get(settings)
    form = page.root.all("form")[0]
    assert document.faults(page.response.text) == []
    del form.one("input", name="is_online").attributes["checked"]
    page = await browser.send(page, form, {})
    assert "checked" not in page.root.one("input", name="is_online").attributes
    await browser.until(f"/handset/{ADA}", "The phone is switched off")
    message = await shop.send(ADA, "are you there?")
    page = await browser.write(CHAT, "written while off")
    assert page.last.one("span", class_="state").get("title") == "waiting to be sent"
    assert shop.events(message) == []
    assert shop.messages == []
    page = await browser.get(settings)
    await browser.send(page, page.root.all("form")[0], {"is_online": "1"})
    await browser.until(CHAT, "are you there")
    await shop.until(lambda: [m.text for m in shop.messages] == ["written while off"])
    await browser.until(CHAT, "✓ ?sent")


async def test_a_phone_that_does_not_send_read_has_a_button_for_it(browser: Browser, shop: Recorder) -> None:
    page = await browser.get(f"/handset/{ADA}/settings")
    form = page.root.all("form")[0]
    del form.one("input", name="sends_read").attributes["checked"]
    await browser.send(page, form, {})
    message = await shop.send(ADA, "Well?")
    page = await browser.until(CHAT, "Well")
    assert (await browser.get(f"/handset/{ADA}")).root.one("span", class_="badge").text == "1 unread"
    await shop.until(lambda: shop.events(message) == ["delivered"])
    button = page.root.one("li", class_="unread").one("button")
    assert button.text == "Send “read” for 1 message"
    page = await browser.press(page, button)
    await shop.until(lambda: shop.events(message) == ["delivered", "read"])
    assert not page.root.all("li", class_="unread")


async def test_a_blocked_number_reaches_nobody_until_it_is_unblocked(browser: Browser, shop: Recorder) -> None:
    page = await browser.get(f"{CHAT}/info")
    page = await browser.press(page, page.root.one("button", value="block"))
    assert page.root.one("button", value="unblock").text == f"Unblock +{BUSINESS}"
    assert f"+{BUSINESS}" in (await browser.get(f"/handset/{ADA}/settings")).root.all("ul")[-1].text
    blocked = await shop.send(ADA, "hello?")
    await shop.until(lambda: shop.events(blocked) == ["refused"] or not shop.fleet.outstanding)
    page = await browser.press(page, page.root.one("button", value="unblock"))
    await shop.send(ADA, "hello again")
    page = await browser.until(CHAT, "hello again")
    assert len(page.messages) == 1


async def test_numbers_blocked_at_the_same_time_are_all_shown(browser: Browser) -> None:
    others = ("15550200001", "15550200002")
    pages = [await browser.get(f"/handset/{ADA}/chats/{other}/info") for other in others]
    await asyncio.gather(*(browser.press(page, page.root.one("button", value="block")) for page in pages))
    for other in others:
        page = await browser.get(f"/handset/{ADA}/chats/{other}/info")
        assert page.root.one("button", value="unblock").text == f"Unblock +{other}"


async def test_a_number_keeps_its_preferences_among_many(live_network: LiveNetwork, tmp_path: Path) -> None:
    settings, number, other = settings_for(live_network, tmp_path / "pages"), "15550900001", "15550200001"
    await migrated.create_sqlite(settings.data_dir / "handset.db", "handset")
    with contextlib.closing(sqlite3.connect(settings.data_dir / "handset.db")) as database, database:
        rows = [(f"155502{n:05}", 0, 1, 1, "", "") for n in range(200)]
        database.executemany("INSERT INTO handset_preferences VALUES (?, ?, ?, ?, ?, ?)", rows)
    async with serving(settings) as pages, pages.browser() as browser:
        await register(browser, number)
        page = await browser.get(f"/handset/{number}/chats/{other}/info")
        await browser.press(page, page.root.one("button", value="block"))
    async with serving(settings) as pages, pages.browser() as browser, asyncio.timeout(60):
        # The phone is opened after the page.
        while (page := await browser.get(f"/handset/{number}/chats/{other}/info")).status != 200:
            pass
        assert page.root.one("button", value="unblock").text == f"Unblock +{other}"


async def test_an_address_with_a_number_of_too_many_digits_is_not_found(pages: Pages) -> None:
    async with pages.unauthenticated() as browser:
        response = await browser.client.get(f"/handset/1/files/{'9' * 5000}/1")
        assert response.status_code == 404


async def test_a_new_number_is_registered_and_announced(browser: Browser, shop: Recorder) -> None:
    await shop.send(ADA, "hello")
    await browser.until(CHAT, "hello")
    page = await browser.get(f"/handset/{ADA}/settings")
    form = next(form for form in page.root.all("form") if form.get("action").endswith("/move"))
    page = await browser.send(page, form, {"new_number": f"+{BOB}"})
    assert page.url.endswith(f"/handset/{BOB}")
    await shop.until(lambda: [m.type for m in shop.messages] == ["system"])
    assert f'"new_wa_id":"{BOB}"' in shop.messages[0].raw


async def test_the_safety_number_appears_with_the_first_message_and_is_that_of_the_other_side(
    browser: Browser,
) -> None:
    await register(browser, BOB)
    page = await browser.get(f"/handset/{ADA}/chats/{BOB}/info")
    assert "There is one after the first message" in page.text
    assert "encrypted end to end" in page.text
    await browser.write(f"/handset/{ADA}/chats/{BOB}", "hello")
    await browser.until(f"/handset/{BOB}/chats/{ADA}", "hello")
    found = [
        await browser.get(path) for path in (f"/handset/{ADA}/chats/{BOB}/info", f"/handset/{BOB}/chats/{ADA}/info")
    ]
    numbers = [page.root.one("p", class_="safety").text for page in found]
    assert numbers[0] == numbers[1]
    assert re.fullmatch(r"(\d{5} ){11}\d{5}", numbers[0])
    assert document.faults(found[0].response.text) == []


async def test_a_number_of_the_terminal_is_opened_with_its_history(
    live_network: LiveNetwork, tmp_path: Path, shop: Recorder
) -> None:
    async with at_the_terminal(terminal_settings(live_network, tmp_path / "data")) as ada:
        await ada.until("Connected")
        message = await shop.send(ADA, "from before")
        await shop.until(lambda: shop.events(message) == ["delivered", "read"])
        ada.type("answered before")
        await shop.until(lambda: len(shop.messages) == 1)
    async with serving(settings_for(live_network, tmp_path / "data")) as pages, pages.browser() as browser:
        page = await browser.get("/handset")
        await browser.press(page, page.root.one("ul", class_="phones").one("button"))
        page = await browser.until(CHAT, "answered before")
        assert [m.one("div", class_="text").text for m in page.messages] == ["from before", "answered before"]
        assert not (await browser.get(f"/handset/{ADA}")).root.all("span", class_="badge")


async def test_a_number_that_a_terminal_runs_is_not_opened(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with (
        at_the_terminal(terminal_settings(live_network, tmp_path / "data")) as ada,
        serving(settings_for(live_network, tmp_path / "data")) as pages,
        pages.browser() as browser,
    ):
        await ada.until("Connected")
        page = await browser.get("/handset")
        page = await browser.press(page, page.root.one("ul", class_="phones").one("button"))
        assert f"Handset-{ADA} is already running" in page.root.one("p", class_="problem").text


async def test_a_closed_phone_keeps_its_registration(browser: Browser, shop: Recorder) -> None:
    page = await browser.get("/handset")
    page = await browser.press(page, page.root.one("ul", class_="phones").one("button"))
    assert (await browser.get(f"/handset/{ADA}")).status == 404
    await shop.send(ADA, "waits")
    page = await browser.press(page, page.root.one("ul", class_="phones").one("button"))
    assert page.url.endswith(f"/handset/{ADA}")
    await browser.until(CHAT, "waits")


async def test_a_number_that_is_registered_elsewhere_is_taken_back(
    live_network: LiveNetwork, tmp_path: Path, browser: Browser
) -> None:
    async with at_the_terminal(terminal_settings(live_network, tmp_path / "other")) as other:
        await other.until("Connected")
        page = await browser.until(f"/handset/{ADA}", "Use the number here again")
        assert document.faults(page.response.text) == []
        (button,) = [each for each in page.root.all("button") if each.text == "Use the number here again"]
        page = await browser.press(page, button)
        assert page.url.endswith(f"/handset/{ADA}"), page.text
        await other.until("no longer knows this registration|in use elsewhere")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """List of the numbers that the page registers from now on."""
    numbers, call = list[str](), NetworkApi.register

    async def register_one(api: NetworkApi, device: DeviceRegistration, *, registration_key: str = "") -> str:
        numbers.append(device.number)
        return await call(api, device, registration_key=registration_key)

    monkeypatch.setattr(NetworkApi, "register", register_one)
    return numbers


async def test_a_number_is_taken_back_once_although_two_tabs_offer_it(
    live_network: LiveNetwork, tmp_path: Path, browser: Browser, registered: list[str]
) -> None:
    async with at_the_terminal(terminal_settings(live_network, tmp_path / "other")) as other:
        await other.until("Connected")
        page = await browser.until(f"/handset/{ADA}", "Use the number here again")
        (button,) = [each for each in page.root.all("button") if each.text == "Use the number here again"]
        registered.clear()
        for _ in range(2):
            assert (await browser.press(page, button)).url.endswith(f"/handset/{ADA}")
    assert registered == [ADA]


async def test_a_phone_that_has_stopped_is_opened_again_without_a_registration(
    browser: Browser, shop: Recorder, registered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(PreKeyRotation, "run", mock.AsyncMock(side_effect=RuntimeError("a defect")))
        page = await browser.get("/handset")
        page = await browser.press(page, page.root.one("ul", class_="phones").one("button"))
        await browser.press(page, page.root.one("ul", class_="phones").one("button"))
        page = await browser.until(f"/handset/{ADA}", "The phone has stopped")
    (button,) = [each for each in page.root.all("button") if each.text == "Use the number here again"]
    assert (await browser.press(page, button)).url.endswith(f"/handset/{ADA}")
    await shop.send(ADA, "hello")
    await browser.until(CHAT, "hello")
    assert registered == []


async def test_attempts_to_register_without_a_response_do_not_add_up_to_more_keys(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as silent:
        silent.setattr(NetworkApi, "register", mock.AsyncMock(side_effect=NetworkTimeout("no response")))
        for _ in range(3):
            page = await browser.get("/handset")
            assert (await browser.send(page, registration_form(page), {"number": CLARA})).status == 503
    await register(browser, CLARA)
    with contextlib.closing(sqlite3.connect(tmp_path / "pages" / "handset.db")) as store:
        query = "SELECT count(*) FROM handset_prekeys WHERE number = ? AND kind = ?"
        assert store.execute(query, (CLARA, prekeys.ONE_TIME)).fetchone() == (100,)


async def test_a_network_that_is_away_is_named(live_network: LiveNetwork, browser: Browser) -> None:
    await live_network.stop()
    page = await browser.write(CHAT, "anybody?")
    assert (page.status, page.root.one("textarea").text) == (503, "anybody?")
    page = await browser.get("/handset")
    page = await browser.send(page, registration_form(page), {"number": BOB})
    assert page.status == 503


async def test_only_one_process_serves_a_data_directory(
    live_network: LiveNetwork, tmp_path: Path, pages: Pages
) -> None:
    with pytest.raises(Exception, match="handset-pages is already running"):
        async with serving(settings_for(live_network, tmp_path / "pages")):
            pass
