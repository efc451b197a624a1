"""Lists of messages and callbacks: filters in the URL, pages by key, and what one of each shows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import pytest

from tests.webapp.conftest import Served
from tests.webapp.console.browser import Browser, check_page
from tests.webapp.console.scene import (
    AT,
    callback,
    enqueue_job,
    fail_attempts,
    message,
    store_callbacks,
    store_messages,
)
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import callback_purges, callback_replays, group_messages
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.group_messages import GroupReceipt
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire import core
from webapp.console.operations.operator_link import OperatorLink

BY = "admin (console)"


def listed(text: str) -> Sequence[str]:
    """Return the ids of the messages or the `seq` of the callbacks of a list."""
    return re.findall(r'class="mono" href="/console/(?:messages|callbacks)/([^"]+)"', text)


def older(text: str) -> str:
    """Return the address of the next page; empty on the last."""
    found = re.search(r'href="([^"]+)" rel="next"', text)
    return found[1].replace("&amp;", "&") if found is not None else ""


async def test_messages_are_listed_newest_first_in_pages_of_50(database: Database, browser: Browser) -> None:
    rows = [message(number) for number in range(120)]
    await store_messages(database, *rows)
    found: list[str] = []
    sizes, address = [], "/console/messages"
    while address:
        text = (await browser.get(address)).text
        sizes.append(len(listed(text)))
        found += listed(text)
        address = older(text)
    assert sizes == [50, 50, 20]
    assert found == [row.id for row in reversed(rows)]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("status=failed", [2]),
        ("type=image", [3]),
        ("recipient=15550110001", [4]),
        ("recipient=%2B15550110001", [4]),
        ("since=2026-05-28T20:26:42", [4, 3, 2]),
        ("until=2026-05-28T20:26:42", [1]),
        ("since=2026-05-28T20:26:42&until=2026-05-28T20:26:43", [2]),
        ("status=nothing", [4, 3, 2, 1]),
    ],
)
async def test_the_url_selects_messages(
    database: Database, browser: Browser, query: str, numbers: Sequence[int]
) -> None:
    rows = {
        1: message(1),
        2: message(2, status=int(Status.FAILED)),
        3: message(3, kind="image"),
        4: message(4, peer="15550110001"),
    }
    await store_messages(database, *rows.values())
    answer = await browser.get(f"/console/messages?{query}")
    assert answer.status_code == 200
    assert listed(answer.text) == [rows[number].id for number in numbers]


async def test_received_messages_have_a_list_of_their_own(database: Database, browser: Browser) -> None:
    received = message(1, id="ABGG0Vzzzzz0000000000000001", status=int(Status.RECEIVED))
    sent = message(2)
    await store_messages(database, received, sent)
    assert listed((await browser.get("/console/messages")).text) == [sent.id]
    assert listed((await browser.get("/console/messages?direction=received")).text) == [received.id]


async def test_an_unreadable_time_is_named(browser: Browser) -> None:
    answer = await browser.get("/console/messages?since=yesterday")
    assert answer.status_code == 400
    assert "From (UTC)" in answer.text


async def test_an_id_leads_to_its_message(database: Database, browser: Browser) -> None:
    row = message(1)
    await store_messages(database, row)
    answer = await browser.get("/console/messages", params={"id": row.id})
    assert answer.headers["Location"] == f"/console/messages/{row.id}"
    answer = await browser.get("/console/messages", params={"id": "gBEGnone"})
    assert "There is no message with the id gBEGnone." in answer.text


async def test_a_message_shows_its_steps_and_callbacks(database: Database, browser: Browser) -> None:
    row = message(1, status=int(Status.DELIVERED))
    await store_messages(database, row)
    await store_callbacks(database, failing=[callback(2, subject=row.id, attempt=1, due_at=AT, last_error="HTTP 500")])
    text = (await browser.get(f"/console/messages/{row.id}")).text
    steps = re.findall(r"<li[^>]*><strong>([^<]+)</strong>", text)
    assert steps == [
        "Accepted and stored",
        "Stored by the network",
        "Delivered",
        "Callback failed and is tried again",
    ]
    assert listed(text) == [str(callback(2).seq)]


async def test_a_message_that_waits_shows_its_failed_attempts(database: Database, browser: Browser) -> None:
    row = message(1)
    await store_messages(database, row)
    await enqueue_job(database, row)
    await fail_attempts(database, row, "the network is away")
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert "Attempts to send failed" in text
    assert "3 × the network is away" in text


async def test_a_message_to_a_group_shows_each_participant(database: Database, browser: Browser) -> None:
    row = message(1, peer="15550000000-1700000000")
    await store_messages(database, row)
    async with database.transaction() as connection:
        receipts = [GroupReceipt(row.id, f"1555011000{n}", int(Status.READ)) for n in range(3)]
        await group_messages.save_receipts(connection, receipts)
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert re.findall(r'<th scope="row">(1555011000\d)</th><td>(\w+)</td>', text) == [
        (f"1555011000{n}", "read") for n in range(3)
    ]


async def test_a_content_is_shown_on_request_with_the_name_of_the_user(
    database: Database, coreapp: FakeCoreapp, browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    row = message(1, kept=b"sealed")
    await store_messages(database, row)
    coreapp.answer(core.ShowMessage, lambda q: core.Shown(q.n, b'{"type":"text","text":{"body":"Guten Tag"}}'))
    page = f"/console/messages/{row.id}"
    assert "Guten Tag" not in (await browser.get(page)).text
    with caplog.at_level("INFO"):
        answer = await browser.submit(page, f"{page}/content")
    assert "Guten Tag" in answer.text
    asked = coreapp.asked(core.ShowMessage)
    assert [(one.id, one.by, one.shard) for one in asked] == [(row.id, BY, 0)]
    shown = [record for record in caplog.records if record.message == "console.content_shown"]
    assert [(record.__dict__["id"], record.__dict__["by"]) for record in shown] == [(row.id, "admin")]


async def test_a_content_that_cannot_be_shown_says_why(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    row = message(1, kept=b"sealed")
    await store_messages(database, row)
    coreapp.refuse(core.ShowMessage, 1006, "it was delivered meanwhile")
    page = f"/console/messages/{row.id}"
    answer = await browser.submit(page, f"{page}/content")
    assert answer.status_code == 409
    assert "it was delivered meanwhile" in answer.text


async def test_callbacks_are_listed_newest_first_in_pages_of_50(database: Database, browser: Browser) -> None:
    rows = [callback(number) for number in range(120)]
    dead = [callback(number, attempt=3) for number in range(120, 140)]
    await store_callbacks(database, pending=rows, dead=dead)
    found: list[str] = []
    sizes, address = [], "/console/callbacks"
    while address:
        text = (await browser.get(address)).text
        sizes.append(len(listed(text)))
        found += listed(text)
        address = older(text)
    assert sizes == [50, 50, 40]
    assert found == [str(row.seq) for row in reversed([*rows, *dead])]


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("status=pending", [1]),
        ("status=failing", [2]),
        ("status=dead", [4, 3]),
        ("kind=contact_change", [3]),
        ("message=gBEGmessage4", [4]),
        ("since=2026-05-28T20:26:43", [4, 3]),
        ("until=2026-05-28T20:26:42", [1]),
    ],
)
async def test_the_url_selects_callbacks(
    database: Database, browser: Browser, query: str, numbers: Sequence[int]
) -> None:
    await store_callbacks(
        database,
        pending=[callback(1)],
        failing=[callback(2, attempt=1, due_at=AT)],
        dead=[callback(3, attempt=9, kind="contact_change"), callback(4, attempt=9, subject="cloud:gBEGmessage4")],
    )
    text = (await browser.get(f"/console/callbacks?{query}")).text
    assert listed(text) == [str(callback(number).seq) for number in numbers]


async def finished(browser: Browser, address: str) -> str:
    """Wait until a replay or purge has ended. Returns its page."""
    async with asyncio.timeout(20):
        while True:
            text = (await browser.get(address)).text
            if "in progress" not in text:
                return text
            await asyncio.sleep(0.01)


async def test_one_callback_is_sent_again(database: Database, coreapp: FakeCoreapp, browser: Browser) -> None:
    await store_callbacks(database, dead=[callback(1, attempt=9)])
    coreapp.answer(core.ReplayCallbacks, lambda q: core.Replayed(q.n, len(q.seqs)))
    answer = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    text = await finished(browser, answer.headers["Location"])
    assert "1 of 1 done" in text
    assert [(one.seqs, one.by, one.shard) for one in coreapp.asked(core.ReplayCallbacks)] == [
        ([callback(1).seq], BY, 0)
    ]


async def test_the_selected_callbacks_of_this_number_are_sent_again(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1), callback(2), callback(3), callback(4, account="15559990000")])
    coreapp.answer(core.ReplayCallbacks, lambda q: core.Replayed(q.n, len(q.seqs)))
    chosen = [str(callback(number).seq) for number in (1, 3, 4)]
    answer = await browser.submit("/console/callbacks", "/console/callbacks/replay", {"seq": [*chosen, "x", "77"]})
    assert "2 of 2 done" in await finished(browser, answer.headers["Location"])
    assert coreapp.asked(core.ReplayCallbacks)[0].seqs == [callback(1).seq, callback(3).seq]


async def test_all_that_match_are_sent_again_after_their_count_was_shown(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(n, attempt=9) for n in range(450)], pending=[callback(900)])
    coreapp.answer(core.ReplayCallbacks, lambda q: core.Replayed(q.n, len(q.seqs)))
    page = "/console/callbacks/change?action=replay&status=dead"
    assert "450 callbacks are made due now" in (await browser.get(page)).text
    answer = await browser.submit(page, "/console/callbacks/change")
    change = answer.headers["Location"]
    await coreapp.until(lambda: coreapp.asked(core.ReplayCallbacks) != [])
    answer = await browser.submit(change, f"{change}/stop")
    text = await finished(browser, change)
    assert "stopped" in text
    asked = coreapp.asked(core.ReplayCallbacks)
    assert 0 < sum(len(one.seqs) for one in asked) < 450
    assert all(len(one.seqs) == 200 for one in asked)


async def test_a_purge_needs_the_typed_count(database: Database, coreapp: FakeCoreapp, browser: Browser) -> None:
    await store_callbacks(database, dead=[callback(n, attempt=9) for n in range(3)], pending=[callback(900)])
    coreapp.answer(core.PurgeCallbacks, lambda q: core.Purged(q.n, len(q.seqs) - 1, 1))
    page, action = "/console/callbacks/change?action=purge", "/console/callbacks/change"
    assert "3 callbacks are deleted and never posted" in (await browser.get(page)).text
    for typed in ("", "2", "all"):
        answer = await browser.submit(page, action, {"typed": typed})
        assert answer.status_code == 400
        check_page(answer)
    assert coreapp.asked(core.PurgeCallbacks) == []
    answer = await browser.submit(page, action, {"typed": "3"})
    text = await finished(browser, answer.headers["Location"])
    assert "2 of 3 done" in text
    assert "1 had changed" in text
    asked = coreapp.asked(core.PurgeCallbacks)[0]
    assert (sorted(asked.seqs), asked.by, asked.choice) == ([callback(n).seq for n in range(3)], BY, "status dead")
    assert asked.statuses == ["dead"]


async def test_a_change_that_fails_says_why(database: Database, coreapp: FakeCoreapp, browser: Browser) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ReplayCallbacks, 1016, "the callback queue is at its limit", 5)
    answer = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    assert "the callback queue is at its limit" in await finished(browser, answer.headers["Location"])


async def test_a_webapp_without_the_operator_key_only_lists(
    console: Served, database: Database, browser: Browser
) -> None:
    link = next(part for part in console.parts.console.parts if isinstance(part, OperatorLink))
    link.operator_key = ""
    await store_callbacks(database, dead=[callback(1)])
    await store_messages(database, message(1, kept=b"sealed"))
    text = (await browser.get("/console/callbacks")).text
    assert listed(text) == [str(callback(1).seq)]
    assert "/console/callbacks/change" not in text
    assert 'action="/console/callbacks/replay"' not in (await browser.get(f"/console/callbacks/{callback(1).seq}")).text


async def test_the_audit_lists_replays_and_purges_newest_first(database: Database, browser: Browser) -> None:
    async with database.transaction() as connection:
        replays = [Replay(callback(n).seq, AT + 1000, 0, BY) for n in range(3)]
        await callback_replays.add(connection, [*replays, Replay(9, AT, 32, "another number")])
        await callback_purges.add(connection, CallbackPurgeRow(AT + 2000, 0, "<b>ann</b>", "status dead", 7))
    text = (await browser.get("/console/callbacks/audit")).text
    rows = re.findall(r'data-label="What">([^<]+)</td>\s*<td data-label="Callbacks">(\d+)</td>', text)
    assert rows == [("deleted", "7"), ("sent again", "3")]
    assert "&lt;b&gt;ann&lt;/b&gt;" in text
