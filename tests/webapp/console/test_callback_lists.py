"""List of callbacks: filters in the URL, pages by key, and what one callback shows."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.webapp.console.browser import Browser
from tests.webapp.console.lists import listed, older
from tests.webapp.console.scene import (
    AT,
    attempt,
    callback,
    store_attempts,
    store_callbacks,
)
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.database import Database
from tidings.wire import core


async def test_callbacks_are_listed_newest_first_in_pages_of_50(database: Database, browser: Browser) -> None:
    rows = [callback(number) for number in range(120)]
    dead = [callback(number, attempt=3) for number in range(120, 140)]
    done = [callback(number) for number in range(140, 170)]
    await store_callbacks(database, pending=rows, dead=dead, done=done)
    found: list[str] = []
    sizes, address = [], "/console/callbacks"
    while address:
        text = (await browser.get(address)).text
        sizes.append(len(listed(text)))
        found += listed(text)
        address = older(text)
    assert sizes == [50, 50, 50, 20]
    assert found == [str(row.seq) for row in reversed([*rows, *dead, *done])]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("status=pending", [1]),
        ("status=failing", [2]),
        ("status=given+up", [4, 3]),
        ("status=done", [6, 5]),
        ("kind=contact_change", [5, 3]),
        ("id=gBEGmessage4", [4]),
        ("id=gBEGmessage6", [6]),
        (f"id=evt_{callback(2).seq:x}", [2]),
        (f"id=evt_{callback(5).seq:x}", [5]),
        ("recipient=15550110001", [6, 1]),
        ("recipient=%2B15550110001&status=done", [6]),
        ("since=2026-05-28T20:26:43", [6, 5, 4, 3]),
        ("until=2026-05-28T20:26:42", [1]),
        ("before=9999999999999999999999", [6, 5, 4, 3, 2, 1]),
    ],
)
async def test_the_url_selects_callbacks(
    database: Database, browser: Browser, query: str, numbers: Sequence[int]
) -> None:
    await store_callbacks(
        database,
        pending=[callback(1, recipient="15550110001")],
        failing=[callback(2, attempt=1, due_at=AT)],
        dead=[callback(3, attempt=9, kind="contact_change"), callback(4, attempt=9, subject="cloud:gBEGmessage4")],
        done=[callback(5, kind="contact_change"), callback(6, recipient="15550110001")],
    )
    response = await browser.get(f"/console/callbacks?{query}")
    assert response.status_code == 200
    assert listed(response.text) == [str(callback(number).seq) for number in numbers]


async def test_one_callback_shows_every_attempt(database: Database, coreapp: FakeCoreapp, browser: Browser) -> None:
    row = callback(1, attempt=3, request_id="request-7")
    await store_callbacks(database, done=[row])
    tried = [attempt(row, 1, 503, "HTTP 503", b"sealed"), attempt(row, 2, None, "TimeoutError: 30 s")]
    await store_attempts(database, *tried)
    page = f"/console/callbacks/{row.seq}"
    text = (await browser.get(page)).text
    cells = re.findall(
        r'data-label="(Attempt|Time \(UTC\)|Duration|Response|Error)">(?:<time[^>]*>)?\s*([^<]+?)\s*<', text
    )
    assert [value for _, value in cells] == [
        *("1", "2026-05-28 20:27:41", "15 ms", "503", "HTTP 503"),
        *("2", "2026-05-28 20:28:41", "15 ms", "–", "TimeoutError: 30 s"),
        *("3", "2026-05-28 20:29:41", "15 ms", "200", "–"),
    ]
    assert f"webhook-id: evt_{row.seq:x}\n" in text
    assert "X-Request-ID: request-7\n" in text
    assert re.findall(r"webhook-timestamp: (\d+)", text) == ["1780000061", "1780000121", "1780000181"]
    assert "webhook-signature" not in text
    assert "down for maintenance" not in text
    coreapp.respond(
        core.ReadCallback,
        lambda q: core.CallbackText(q.n, b'{"a":1}', [core.AttemptResponse(tried[0].at, b"down for maintenance")]),
    )
    shown = await browser.submit(page, f"{page}/body")
    assert "down for maintenance" in shown.text
    assert "&#34;a&#34;: 1" in shown.text
    requested = coreapp.requested(core.ReadCallback)
    assert [(one.account, one.seq, one.by) for one in requested] == [("15550000000", row.seq, "admin (console)")]


async def test_a_coreapp_that_would_record_no_reader_shows_no_body(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.version = 4
    page = f"/console/callbacks/{callback(1).seq}"
    response = await browser.submit(page, f"{page}/body")
    assert response.status_code == 503
    assert "has an earlier release" in response.text
    assert coreapp.requested(core.ReadCallback) == []


async def test_a_body_that_cannot_be_shown_says_why(database: Database, coreapp: FakeCoreapp, browser: Browser) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ReadCallback, 1006, "its history has expired")
    page = f"/console/callbacks/{callback(1).seq}"
    response = await browser.submit(page, f"{page}/body")
    assert response.status_code == 409
    assert "its history has expired" in response.text
