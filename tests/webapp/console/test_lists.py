"""Lists of messages and callbacks: filters in the URL, pages by key, and what one of each shows."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import TypeVar

import httpx
import pytest

from harness import polling
from tests.webapp.conftest import Served
from tests.webapp.console.browser import Browser, check_page, forms
from tests.webapp.console.scene import (
    AT,
    attempt,
    callback,
    enqueue_job,
    fail_attempts,
    message,
    store_attempts,
    store_callbacks,
    store_messages,
)
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import callback_purges, callback_replays, group_messages, messages
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.group_messages import GroupReceipt
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire import core
from webapp.console.operations.bulk_changes import BulkChange, BulkChanges, SelectedCallbacks
from webapp.console.operations.operator_link import OperatorLink
from webapp.http.errors import Overloaded

Part = TypeVar("Part")

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
    # Its id was derived from one of the Cloud API and has no time.
    of_upstream = message(3, id="ABGGz" + "7" * 22, status=int(Status.RECEIVED))
    sent = message(2)
    await store_messages(database, received, of_upstream, sent)
    assert listed((await browser.get("/console/messages")).text) == [sent.id]
    assert listed((await browser.get("/console/messages?direction=received")).text) == [of_upstream.id, received.id]


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
    row = message(1)
    await store_messages(database, row)
    async with database.transaction() as connection:
        await messages.note_encrypted(connection, [row.id], AT + 2000)
        await messages.advance(connection, {row.id: Status.SENT}, AT + 3000)
        await messages.advance(connection, {row.id: Status.DELIVERED}, AT + 4000)
    await store_callbacks(
        database,
        failing=[callback(6, subject=row.id, attempt=1, due_at=AT, last_error="HTTP 500")],
        done=[callback(5, subject=f"cloud:{row.id}")],
    )
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert steps_of(text) == [
        ("Accepted", "20:26:41"),
        ("Stored", "20:26:41"),
        ("Encrypted for the recipient", "20:26:42"),
        ("Stored by the network", "20:26:43"),
        ("Delivered", "20:26:44"),
        ("Callback was accepted by the webhook", "20:27:45"),
        ("Callback failed and is tried again", "20:26:46"),
    ]
    assert set(listed(text)) == {str(callback(5).seq), str(callback(6).seq)}


def steps_of(text: str) -> Sequence[tuple[str, str]]:
    """Return the name and the time of day of each step of a message; the time is empty when it was not recorded."""
    found = re.findall(r"<li[^>]*><strong>([^<]+)</strong>\s*<span class=\"when\">(.*?)</span>", text, re.DOTALL)
    times = [re.search(r">\d{4}-\d\d-\d\d ([\d:]+)<", when) for _, when in found]
    return [(name, at[1] if at is not None else "") for (name, _), at in zip(found, times, strict=True)]


async def test_a_message_encrypted_at_once_has_the_time_at_which_it_was_stored(
    database: Database, browser: Browser
) -> None:
    row = message(1)
    await store_messages(database, row)
    async with database.transaction() as connection:
        await messages.advance(connection, {row.id: Status.SENT}, AT + 3000)
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert steps_of(text)[2:] == [("Encrypted for the recipient", "20:26:41"), ("Stored by the network", "20:26:43")]


async def test_steps_of_which_no_time_was_kept_are_shown_without(database: Database, browser: Browser) -> None:
    row = message(1, status=int(Status.READ))
    await store_messages(database, row)
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert steps_of(text)[2:] == [
        ("Encrypted for the recipient", ""),
        ("Stored by the network", ""),
        ("Delivered", ""),
        ("Read", ""),
    ]
    assert text.count("not recorded") == 4


async def test_a_failure_is_shown_in_words_with_a_link_to_its_code(database: Database, browser: Browser) -> None:
    row = message(1, status=int(Status.FAILED))
    await store_messages(database, row)
    async with database.transaction() as connection:
        await messages.note_failures(connection, {row.id: 470}, AT + 5000)
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert steps_of(text)[-1] == ("Failed", "20:26:45")
    assert '<a href="/console/codes?code=470">470: Re-engagement message</a>' in text
    codes = (await browser.get("/console/codes?code=470")).text
    first = re.findall(r'data-label="Code">(\d+)</th>\s*<td[^>]*>([^<]+)<', codes)[0]
    assert first == ("470", "Re-engagement message")
    assert "131047 Re-engagement message" in codes


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
        receipts = [
            GroupReceipt(row.id, "15550110001", int(Status.READ), AT + 1000, AT + 2000),
            GroupReceipt(row.id, "15550110002", int(Status.DELIVERED), AT + 3000),
        ]
        await group_messages.save_receipts(connection, receipts)
    text = (await browser.get(f"/console/messages/{row.id}")).text
    rows = re.findall(r'<tr><th scope="row" data-label="Participant">(.*?)</tr>', text, re.DOTALL)
    assert [re.findall(r">(\d{11}|\w+|[\d-]+ [\d:]+|–)<", ">" + row) for row in rows] == [
        ["15550110001", "read", "2026-05-28 20:26:41", "2026-05-28 20:26:42"],
        ["15550110002", "delivered", "2026-05-28 20:26:43", "–"],
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
    answer = await browser.get(f"/console/callbacks?{query}")
    assert answer.status_code == 200
    assert listed(answer.text) == [str(callback(number).seq) for number in numbers]


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
    coreapp.answer(
        core.ReadCallback,
        lambda q: core.CallbackText(q.n, b'{"a":1}', [core.AttemptResponse(tried[0].at, b"down for maintenance")]),
    )
    shown = await browser.submit(page, f"{page}/body")
    assert "down for maintenance" in shown.text
    assert "&#34;a&#34;: 1" in shown.text
    assert [(one.account, one.seq) for one in coreapp.asked(core.ReadCallback)] == [("15550000000", row.seq)]


async def test_a_body_that_cannot_be_shown_says_why(database: Database, coreapp: FakeCoreapp, browser: Browser) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ReadCallback, 1006, "its history has expired")
    page = f"/console/callbacks/{callback(1).seq}"
    answer = await browser.submit(page, f"{page}/body")
    assert answer.status_code == 409
    assert "its history has expired" in answer.text


async def shows(browser: Browser, address: str, words: str) -> str:
    """Wait until a page has these words. Returns the page."""
    text = ""

    async def has_words() -> bool:
        nonlocal text
        text = (await browser.get(address)).text
        return words in text

    await polling.until(has_words, pause=0.01)
    return text


async def finished(browser: Browser, address: str) -> str:
    """Wait until a replay or purge has ended. Returns its page."""
    text = ""

    async def has_ended() -> bool:
        nonlocal text
        text = (await browser.get(address)).text
        return "in progress" not in text

    await polling.until(has_ended, pause=0.01)
    return text


def replay_all(coreapp: FakeCoreapp) -> None:
    """Let the Coreapp post every callback again."""
    coreapp.answer(core.ResendCallbacks, lambda q: core.Replayed(q.n, len(q.seqs)))


def asked_again(coreapp: FakeCoreapp) -> Sequence[tuple[Sequence[int], bool]]:
    """Return the callbacks of each replay, and whether those accepted by now are posted again as well."""
    return [(one.seqs, one.accepted) for one in coreapp.asked(core.ResendCallbacks)]


@pytest.mark.parametrize("state", ["failing", "dead", "done"])
async def test_one_callback_is_sent_again(
    database: Database, coreapp: FakeCoreapp, browser: Browser, state: str
) -> None:
    await store_callbacks(database, **{state: [callback(1, attempt=9, due_at=AT)]})
    replay_all(coreapp)
    answer = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    text = await finished(browser, answer.headers["Location"])
    assert "1 of 1 done" in text
    (asked,) = coreapp.asked(core.ResendCallbacks)
    # A callback that the webhook accepts in the meantime is not posted twice.
    assert (asked.account, asked.seqs, asked.shard, asked.accepted) == (
        "15550000000",
        [callback(1).seq],
        0,
        state == "done",
    )
    assert re.fullmatch(r"admin \(console [0-9a-f]{16}\)", asked.by)


async def test_a_callback_that_was_not_tried_yet_is_not_sent_again(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, pending=[callback(1)], dead=[callback(2)])
    text = (await browser.get(f"/console/callbacks/{callback(1).seq}")).text
    assert 'action="/console/callbacks/replay"' not in text
    answer = await browser.submit("/console/callbacks", "/console/callbacks/replay", {"seq": [str(callback(1).seq)]})
    assert answer.headers["Location"] == "/console/callbacks"
    assert "No callback matches" in (await browser.get("/console/callbacks/change?action=replay&status=pending")).text
    assert asked_again(coreapp) == []


async def test_the_selected_callbacks_of_this_number_are_sent_again(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(
        database, dead=[callback(1), callback(2), callback(4, account="15559990000")], done=[callback(3)]
    )
    replay_all(coreapp)
    chosen = [str(callback(number).seq) for number in (1, 3, 4)]
    more = ["x", "77", "9" * 30]
    answer = await browser.submit("/console/callbacks", "/console/callbacks/replay", {"seq": [*chosen, *more]})
    assert "2 of 2 done" in await finished(browser, answer.headers["Location"])
    assert asked_again(coreapp) == [([callback(1).seq], False), ([callback(3).seq], True)]


async def test_all_that_match_are_sent_again_after_their_count_was_shown(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(
        database,
        dead=[callback(1, attempt=9)],
        failing=[callback(2, attempt=1, due_at=AT)],
        done=[callback(3), callback(4)],
        pending=[callback(5)],
    )
    replay_all(coreapp)
    page = "/console/callbacks/change?action=replay"
    text = (await browser.get(page)).text
    assert "4 callbacks are posted again" in text
    assert re.findall(r"<li>(given up|failing|done|not tried yet): (\d)</li>", text) == [
        ("done", "2"),
        ("failing", "1"),
        ("given up", "1"),
    ]
    answer = await browser.submit(page, "/console/callbacks/change")
    assert "4 of 4 done" in await finished(browser, answer.headers["Location"])
    assert asked_again(coreapp) == [
        ([callback(4).seq, callback(3).seq], True),
        ([callback(2).seq], False),
        ([callback(1).seq], False),
    ]


async def test_a_replay_of_many_shows_its_progress_and_stops(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(n, attempt=9) for n in range(450)])
    replay_all(coreapp)
    page = "/console/callbacks/change?action=replay&status=given+up"
    assert "450 callbacks are posted again" in (await browser.get(page)).text
    change = (await browser.submit(page, "/console/callbacks/change")).headers["Location"]
    await coreapp.until(lambda: coreapp.asked(core.ResendCallbacks) != [])
    await shows(browser, change, "200 of 450 done")
    assert (await stop(browser, change)).status_code == 303
    text = await finished(browser, change)
    assert "stopped" in text
    await asyncio.sleep(1.2)  # longer than the pause between two pages
    assert [len(seqs) for seqs, _ in asked_again(coreapp)] in ([200], [200, 200])


async def test_ten_thousand_callbacks_are_sent_again_with_progress(
    database: Database, coreapp: FakeCoreapp, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "REPLAYS_PER_SECOND", 100_000)
    await store_callbacks(
        database,
        dead=[callback(n, attempt=9) for n in range(8_000)],
        done=[callback(n) for n in range(8_000, 10_000)],
    )
    replay_all(coreapp)
    page = "/console/callbacks/change?action=replay"
    assert "10,000 callbacks are posted again" in (await browser.get(page)).text
    change = (await browser.submit(page, "/console/callbacks/change")).headers["Location"]
    shown = set()

    async def has_ended() -> bool:
        text = (await browser.get(change)).text
        shown.update(re.findall(r"([\d,]+) of 10,000 done", text))
        return "finished" in text

    await polling.until(has_ended, pause=0.001)
    assert "10,000" in shown
    assert len(shown) > 3
    asked = coreapp.asked(core.ResendCallbacks)
    assert max(len(one.seqs) for one in asked) == 200
    assert sorted(seq for one in asked for seq in one.seqs) == [callback(n).seq for n in range(10_000)]
    assert sum(len(one.seqs) for one in asked if one.accepted) == 2_000


async def stop(browser: Browser, change: str) -> httpx.Response:
    """Press the button of a change's page."""
    path, _, query = change.partition("?")
    return await browser.submit(change, f"{path}/stop?{query}")


async def test_a_replay_goes_on_after_the_coreapp_was_busy(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ResendCallbacks, 1016, "the callback queue is at its limit", 1)
    answer = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    change = answer.headers["Location"]
    text = await shows(browser, change, "the callback queue is at its limit")
    assert "in progress" in text
    replay_all(coreapp)
    text = await finished(browser, change)
    assert "1 of 1 done" in text
    assert "at its limit" not in text


async def test_a_change_that_waits_for_the_coreapp_stops_at_once(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ResendCallbacks, 1016, "the callback queue is at its limit", 300)
    answer = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    change = answer.headers["Location"]
    await coreapp.until(lambda: coreapp.asked(core.ResendCallbacks) != [])
    await stop(browser, change)
    assert "0 of 1 done" in await finished(browser, change)


@pytest.mark.parametrize("is_bug", [False, True])
async def test_a_change_that_fails_says_why(
    console: Served,
    database: Database,
    coreapp: FakeCoreapp,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_bug: bool,
) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ResendCallbacks, 1005, "the shard is not one of this number")
    if is_bug:
        monkeypatch.setattr(OperatorLink, "call", None)
    answer = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    text = await finished(browser, answer.headers["Location"])
    assert "stopped" in text
    assert ("the shard is not one of this number" in text) is not is_bug
    assert ("TypeError: the log of this Webapp has the cause" in text) is is_bug
    assert any(record.message == "console.change_failed" for record in caplog.records) is is_bug


async def test_a_purge_needs_the_typed_count(database: Database, coreapp: FakeCoreapp, browser: Browser) -> None:
    await store_callbacks(database, dead=[callback(n, attempt=9) for n in range(3)], pending=[callback(900)])
    coreapp.answer(core.PurgeCallbacks, lambda q: core.Purged(q.n, len(q.seqs) - 1, 1))
    page, action = "/console/callbacks/change?action=purge", "/console/callbacks/change"
    assert "3 callbacks are deleted and never posted" in (await browser.get(page)).text
    for typed in ("", "2", "all"):
        answer = await browser.submit(page, action, {"typed": typed})
        assert answer.status_code == 400
        check_page(answer)
    assert (await browser.submit(page, action, {"typed": "3", "below": ""})).status_code == 400
    assert coreapp.asked(core.PurgeCallbacks) == []
    answer = await browser.submit(page, action, {"typed": "3"})
    text = await finished(browser, answer.headers["Location"])
    assert "2 of 3 done" in text
    assert "1 had changed" in text
    asked = coreapp.asked(core.PurgeCallbacks)[0]
    assert (sorted(asked.seqs), asked.choice) == ([callback(n).seq for n in range(3)], "status given up")
    assert re.fullmatch(r"admin \(console [0-9a-f]{16}\)", asked.by)
    assert asked.statuses == ["dead"]


async def test_a_purge_leaves_callbacks_that_came_after_its_count_was_shown(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(n, attempt=9) for n in range(3)])
    coreapp.answer(core.PurgeCallbacks, lambda q: core.Purged(q.n, len(q.seqs)))
    page, action = "/console/callbacks/change?action=purge", "/console/callbacks/change"
    shown = forms((await browser.get(page)).text)
    fields = next(form for form in shown if form.action == action).fields
    # Another one came after the count was shown.
    await store_callbacks(database, dead=[callback(9, attempt=9)])
    answer = await browser.post(action, {**fields, "typed": "3"})
    assert "3 of 3 done" in await finished(browser, answer.headers["Location"])
    assert sorted(coreapp.asked(core.PurgeCallbacks)[0].seqs) == [callback(n).seq for n in range(3)]


async def test_a_purge_never_takes_callbacks_of_another_status(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, pending=[callback(1)], dead=[callback(2)], done=[callback(3)])
    text = (await browser.get("/console/callbacks/change?action=purge&status=done")).text
    assert "No callback matches." in text
    token = forms(text)[0].fields["csrf"]
    fields = {"csrf": token, "action": "purge", "status": "done", "typed": "1", "below": str(callback(9).seq)}
    answer = await browser.post("/console/callbacks/change", fields)
    assert answer.headers["Location"] == "/console/callbacks?status=done"
    assert coreapp.asked(core.PurgeCallbacks) == []


async def test_each_number_has_two_changes_at_a_time_and_none_is_forgotten_before_its_end(
    console: Served, database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    coreapp.refuse(core.ResendCallbacks, 1016, "busy", 300)
    changes = found_part(console, BulkChanges)
    one = SelectedCallbacks({(0, "given up"): [callback(1).seq]})

    def start(account: str) -> BulkChange:
        return changes.start("replay", one, account=account, user="ann", choice="all")

    slow = [start("15550000000"), start("15550000000")]
    with pytest.raises(Overloaded):
        start("15550000000")
    others = [start("15559990000"), start("15559990000")]
    await coreapp.until(lambda: len(coreapp.asked(core.ResendCallbacks)) == 4)
    slow[1].stop()
    await until_ended(slow[1])
    replay_all(coreapp)
    for _ in range(30):
        await until_ended(start("15550000000"))
    listed = changes.list("15550000000")
    assert slow[0] in listed
    assert len(listed) <= 21
    assert changes.list("15559990000") == others[::-1]


async def until_ended(change: BulkChange) -> None:
    async def is_ended() -> bool:
        return change.is_ended

    await polling.until(is_ended, pause=0.005)


async def test_another_webapp_shows_the_progress_of_a_change(
    console: Served, database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(n) for n in range(4)])
    coreapp.refuse(core.ResendCallbacks, 1016, "busy", 300)
    answer = await browser.submit("/console/callbacks/change?action=replay", "/console/callbacks/change")
    change = answer.headers["Location"]
    await coreapp.until(lambda: coreapp.asked(core.ResendCallbacks) != [])
    by = coreapp.asked(core.ResendCallbacks)[0].by
    now = int(time.time() * 1000)
    changes = found_part(console, BulkChanges)
    (own,) = changes.list("15550000000")
    changes._changes.clear()  # as another Webapp, which knows no change
    async with database.transaction() as connection:
        replays = [Replay(callback(n).seq, now, 0, by) for n in range(3)]
        others = [Replay(callback(8).seq, now, 0, "admin (console 0123456789abcdef)"), Replay(9, now, 32, by)]
        await callback_replays.add(connection, [*replays, *others])
    answer = await browser.get(change)
    check_page(answer)
    assert "at another Webapp" in answer.text
    assert "3 of 4 done" in answer.text
    stopped = await stop(browser, change)
    assert stopped.status_code == 409
    assert "Only the Webapp that carries this out stops it." in stopped.text
    async with database.transaction() as connection:
        await callback_replays.add(connection, [Replay(callback(3).seq, now, 0, by)])
    assert "finished" in (await browser.get(change)).text
    path = change.partition("?")[0]
    for wrong in (
        *("", "action=replay&at=1&total=0", "action=replay&at=1&total=x", "action=other&at=1&total=4"),
        f"action=replay&at=1&total={'9' * 30}",
    ):
        assert (await browser.get(f"{path}?{wrong}")).status_code == 404
    own.stop()


def found_part(console: Served, kind: type[Part]) -> Part:
    """Return a part of the console by its class."""
    assert console.parts.console is not None
    return next(part for part in console.parts.console.parts if isinstance(part, kind))


async def test_a_webapp_without_the_operator_key_neither_deletes_nor_opens_messages(
    console: Served, database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    found_part(console, OperatorLink).operator_key = ""
    await store_callbacks(database, dead=[callback(1)])
    sent = message(1, kept=b"sealed")
    await store_messages(database, sent)
    replay_all(coreapp)
    text = (await browser.get("/console/callbacks")).text
    assert listed(text) == [str(callback(1).seq)]
    assert "action=purge" not in text
    assert "/content" not in (await browser.get(f"/console/messages/{sent.id}")).text
    page = "/console/callbacks/change?action=purge"
    change = (await browser.submit(page, "/console/callbacks/change", {"typed": "1"})).headers["Location"]
    assert "this Webapp has no operator key" in await finished(browser, change)
    answer = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    assert "1 of 1 done" in await finished(browser, answer.headers["Location"])


async def test_the_audit_lists_replays_and_purges_newest_first(database: Database, browser: Browser) -> None:
    async with database.transaction() as connection:
        replays = [Replay(callback(n).seq, AT + 1000, 0, BY) for n in range(3)]
        await callback_replays.add(connection, [*replays, Replay(9, AT, 32, "another number")])
        await callback_purges.add(connection, CallbackPurgeRow(AT + 2000, 0, "<b>ann</b>", "status dead", 7))
    text = (await browser.get("/console/callbacks/audit")).text
    rows = re.findall(r'data-label="What">([^<]+)</td>\s*<td data-label="Callbacks">(\d+)</td>', text)
    assert rows == [("deleted", "7"), ("sent again", "3")]
    assert "&lt;b&gt;ann&lt;/b&gt;" in text
