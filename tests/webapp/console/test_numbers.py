"""Numbers of the installation: its first number's administrator pauses and resumes the others."""

from __future__ import annotations

import re

import pytest

from tests.webapp.conftest import Served
from tests.webapp.console.browser import Browser, check_page, forms
from tidings.storage.business import audit_entries, changes, numbers
from tidings.storage.database import Database

PAGE, ACTION = "/console/settings", "/console/settings/number"
FIRST, OTHER = "15550000000", "15559990000"


@pytest.fixture
async def other(console: Served, database: Database) -> str:
    """Further number of the installation."""
    async with database.transaction() as connection:
        await numbers.add_first(connection, FIRST)
        return (await numbers.add(connection, OTHER)).number


async def state_of(database: Database, number: str) -> str:
    async with database.reading() as connection:
        found = await numbers.find(connection, number)
    assert found is not None
    return found.state


async def send(browser: Browser, number: str, action: str) -> tuple[int, str]:
    """Send the form of any number. Returns the status and the page."""
    token = next(form.fields["csrf"] for form in forms((await browser.get(PAGE)).text) if form.method == "post")
    response = await browser.post(ACTION, {"csrf": token, "number": number, "action": action})
    return response.status_code, response.text


async def test_a_number_is_paused_and_resumed_with_an_audit_entry_each(
    database: Database, browser: Browser, other: str
) -> None:
    async with database.reading() as connection:
        before = await changes.list_versions(connection)
    response = await browser.submit(PAGE, ACTION)
    assert (response.status_code, response.headers["Location"]) == (303, f"{PAGE}?saved=1")
    assert await state_of(database, other) == "paused"
    async with database.reading() as connection:
        assert await changes.list_versions(connection) != before, "every Webapp is notified"
    page = await browser.get(PAGE)
    check_page(page)
    assert re.findall(r'data-label="State">([^<]+)<', page.text) == ["active", "paused"]
    assert f'aria-label="Resume {OTHER}"' in page.text
    response = await browser.submit(PAGE, ACTION)
    assert response.status_code == 303
    assert await state_of(database, other) == "active"
    audit = (await browser.get("/console/callbacks/audit")).text
    rows = re.findall(
        r'data-label="What">([^<]+)<.*?data-label="By">([^<]+)<.*?id or number">([^<]+)<', audit, re.DOTALL
    )
    assert rows == [("number resumed", "admin (console)", OTHER), ("number paused", "admin (console)", OTHER)]


async def test_a_number_that_is_paused_already_gets_no_further_entry(
    database: Database, browser: Browser, other: str
) -> None:
    for _ in range(2):
        assert (await send(browser, other, "pause"))[0] == 303
    async with database.reading() as connection:
        assert len(await audit_entries.list_latest(connection, FIRST, limit=9)) == 1


async def test_numbers_that_cannot_be_paused_are_refused(database: Database, browser: Browser, other: str) -> None:
    status, text = await send(browser, FIRST, "pause")
    assert status == 403
    assert "The first number is paused with tidings number pause" in text
    status, text = await send(browser, "15551112222", "pause")
    assert status == 404
    assert "This is not a number of the installation." in text
    async with database.transaction() as connection:
        await numbers.set_state(connection, other, "removing")
    status, text = await send(browser, other, "resume")
    assert status == 400
    assert "The number is being removed." in text
    assert f'action="{ACTION}"' not in text
    assert await state_of(database, other) == "removing"
    assert await state_of(database, FIRST) == "active"


@pytest.mark.parametrize("action", ["", "stop", "PAUSE"])
async def test_an_unknown_action_is_refused(database: Database, browser: Browser, other: str, action: str) -> None:
    async with database.transaction() as connection:
        await numbers.set_state(connection, other, "paused")
    status, text = await send(browser, other, action)
    assert status == 400
    assert "A number can be paused or resumed." in text
    assert await state_of(database, other) == "paused"


async def test_a_form_without_its_token_pauses_nothing(database: Database, browser: Browser, other: str) -> None:
    response = await browser.post(ACTION, {"number": other, "action": "pause"})
    assert response.status_code == 403
    assert await state_of(database, other) == "active"
