"""Input that no browser sends: it gets an error or is ignored, and never fails a page."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from tests.webapp.conftest import Served
from tests.webapp.console.browser import Browser, check_page
from tidings.storage.database import Database
from webapp.console import routes
from webapp.console.access import forms
from webapp.console.figures.processes import NumberShards
from webapp.console.page_request import PageRequest, Result, redirect
from webapp.console.pages import template_preview

NESTED = "[" * 20_000


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("0", 0),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", None),
        ("9" * 5000, None),
        ("²", None),
        ("٣", None),
        ("-1", None),
        ("", None),
    ],
)
def test_a_key_has_at_most_63_bits_in_ascii_digits(given: str, found: int | None) -> None:
    assert forms.number(given) == found


@pytest.mark.parametrize("value", [NESTED, "[]", "NaN", '{"a":1'])
async def test_a_message_that_is_no_object_of_json_is_refused(browser: Browser, value: str) -> None:
    fields = {"to": "15550140001", "json": value}
    response = await browser.submit("/console/try-it?type=json", "/console/try-it", fields)
    assert response.status_code == 400
    check_page(response)


@pytest.mark.parametrize("value", [NESTED, "{", ""])
async def test_components_that_are_no_json_are_refused(browser: Browser, value: str) -> None:
    page = "/console/templates/new"
    response = await browser.submit(page, page, {"name": "greeting", "components": value})
    assert response.status_code == 400
    check_page(response)


def test_a_parameter_with_digits_of_another_script_is_shown_as_it_is() -> None:
    parts = [{"type": "BODY", "text": "{{²}} {{1}}", "example": {"body_text": [["first"]]}}]
    assert template_preview.preview(parts).body == "{{²}} first"


@pytest.mark.parametrize("host", ["[", "[::1", "127.0.0.1:x", ""])
async def test_a_malformed_host_gets_no_login(unauthenticated_browser: Browser, host: str) -> None:
    response = await unauthenticated_browser.get("/console/login", headers={"Host": host})
    assert response.status_code in (200, 400, 421)
    assert 'name="password"' not in response.text


async def test_a_user_makes_one_selection_at_a_time(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    async def select(page: PageRequest) -> Result:
        begun.set()
        await gate.wait()
        return redirect("/console")

    limited = [route for route in routes.ROUTES if route.is_exclusive]
    assert {(route.method, route.path) for route in limited} == {
        ("GET", "/console/callbacks/change"),
        ("POST", "/console/callbacks/change"),
    }
    slow = [dataclasses.replace(route, handler=select) if route.is_exclusive else route for route in routes.ROUTES]
    monkeypatch.setattr(routes, "ROUTES", slow)
    first = asyncio.create_task(browser.get("/console/callbacks/change"))
    await begun.wait()
    refused = await browser.get("/console/callbacks/change")
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "1"
    check_page(refused)
    assert (await browser.get("/console/callbacks")).status_code == 200
    gate.set()
    assert (await first).status_code == 303
    assert (await browser.get("/console/callbacks/change")).status_code == 303


async def test_an_unknown_number_has_no_shards(console: Served, database: Database) -> None:
    numbers = console.parts.numbers
    shards = NumberShards(database, numbers.known_block_of)
    assert await shards.of("15550000000") == [0]
    assert await shards.of("15559999999") == []
