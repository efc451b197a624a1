"""Replays and purges: one callback, a selection, all that match; progress, stop and audit."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

import httpx
import pytest

from harness import polling
from tests.webapp.conftest import Serve, Served
from tests.webapp.console.browser import Browser, check_page, forms
from tests.webapp.console.conftest import OPERATOR_KEY, end_changes
from tests.webapp.console.lists import found_part, listed
from tests.webapp.console.scene import (
    AT,
    callback,
    message,
    store_callbacks,
    store_messages,
)
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business import audit_entries, callback_changes, callback_purges, callback_replays
from tidings.storage.business.audit_entries import AuditAction
from tidings.storage.business.callback_changes import CallbackChange
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.callback_views import CallbackFilter
from tidings.storage.database import Database
from tidings.wire import core
from webapp.console.operations import bulk_changes
from webapp.console.operations.bulk_changes import BulkChanges, SelectedCallbacks
from webapp.console.operations.operator_link import OperatorLink
from webapp.http.errors import Overloaded

BY = "admin (console)"


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
    coreapp.respond(core.ResendCallbacks, lambda q: core.Replayed(q.n, len(q.seqs)))


def requested_again(coreapp: FakeCoreapp) -> Sequence[tuple[Sequence[int], bool]]:
    """Return the callbacks of each replay, and whether those accepted by now are posted again as well."""
    return [(one.seqs, one.accepted) for one in coreapp.requested(core.ResendCallbacks)]


@pytest.mark.parametrize("state", ["failing", "dead", "done"])
async def test_one_callback_is_sent_again(
    database: Database, coreapp: FakeCoreapp, browser: Browser, state: str
) -> None:
    await store_callbacks(database, **{state: [callback(1, attempt=9, due_at=AT)]})
    replay_all(coreapp)
    response = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    text = await finished(browser, response.headers["Location"])
    assert "1 of 1 done" in text
    (requested,) = coreapp.requested(core.ResendCallbacks)
    # A callback that the webhook accepts in the meantime is not posted twice.
    assert (requested.account, requested.seqs, requested.shard, requested.accepted) == (
        "15550000000",
        [callback(1).seq],
        0,
        state == "done",
    )
    assert re.fullmatch(r"admin \(console [0-9a-f]{16}\)", requested.by)


async def test_a_callback_that_was_not_tried_yet_is_not_sent_again(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, pending=[callback(1)], dead=[callback(2)])
    text = (await browser.get(f"/console/callbacks/{callback(1).seq}")).text
    assert 'action="/console/callbacks/replay"' not in text
    response = await browser.submit("/console/callbacks", "/console/callbacks/replay", {"seq": [str(callback(1).seq)]})
    assert response.headers["Location"] == "/console/callbacks"
    assert "No callback matches" in (await browser.get("/console/callbacks/change?action=replay&status=pending")).text
    assert requested_again(coreapp) == []


async def test_the_selected_callbacks_of_this_number_are_sent_again(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(
        database, dead=[callback(1), callback(2), callback(4, account="15559990000")], done=[callback(3)]
    )
    replay_all(coreapp)
    chosen = [str(callback(number).seq) for number in (1, 3, 4)]
    more = ["x", "77", "9" * 30]
    response = await browser.submit("/console/callbacks", "/console/callbacks/replay", {"seq": [*chosen, *more]})
    assert "2 of 2 done" in await finished(browser, response.headers["Location"])
    assert requested_again(coreapp) == [([callback(1).seq], False), ([callback(3).seq], True)]


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
    response = await browser.submit(page, "/console/callbacks/change")
    assert "4 of 4 done" in await finished(browser, response.headers["Location"])
    assert requested_again(coreapp) == [
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
    await coreapp.until(lambda: coreapp.requested(core.ResendCallbacks) != [])
    await shows(browser, change, "200 of 450 done")
    assert (await stop(browser, change)).status_code == 303
    text = await finished(browser, change)
    assert "stopped" in text
    await asyncio.sleep(1.2)  # longer than the pause between two pages
    assert [len(seqs) for seqs, _ in requested_again(coreapp)] in ([200], [200, 200])


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
    requested = coreapp.requested(core.ResendCallbacks)
    assert max(len(one.seqs) for one in requested) == 200
    assert sorted(seq for one in requested for seq in one.seqs) == [callback(n).seq for n in range(10_000)]
    assert sum(len(one.seqs) for one in requested if one.accepted) == 2_000


async def stop(browser: Browser, change: str) -> httpx.Response:
    """Press the button of a change's page."""
    return await browser.submit(change, f"{change}/stop")


async def test_a_replay_goes_on_after_the_coreapp_was_busy(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ResendCallbacks, 1016, "the callback queue is at its limit", 1)
    response = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    change = response.headers["Location"]
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
    response = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    change = response.headers["Location"]
    await coreapp.until(lambda: coreapp.requested(core.ResendCallbacks) != [])
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
    response = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    text = await finished(browser, response.headers["Location"])
    assert "stopped" in text
    assert ("the shard is not one of this number" in text) is not is_bug
    assert ("TypeError: the log of the Webapp has the cause" in text) is is_bug
    assert any(record.message == "console.change_failed" for record in caplog.records) is is_bug


async def test_a_purge_needs_the_typed_count(database: Database, coreapp: FakeCoreapp, browser: Browser) -> None:
    await store_callbacks(database, dead=[callback(n, attempt=9) for n in range(3)], pending=[callback(900)])
    coreapp.respond(core.PurgeCallbacks, lambda q: core.Purged(q.n, len(q.seqs) - 1, 1))
    page, action = "/console/callbacks/change?action=purge", "/console/callbacks/change"
    assert "3 callbacks are deleted and never posted" in (await browser.get(page)).text
    for typed in ("", "2", "all"):
        response = await browser.submit(page, action, {"typed": typed})
        assert response.status_code == 400
        check_page(response)
    assert (await browser.submit(page, action, {"typed": "3", "below": ""})).status_code == 400
    assert coreapp.requested(core.PurgeCallbacks) == []
    response = await browser.submit(page, action, {"typed": "3"})
    text = await finished(browser, response.headers["Location"])
    assert "2 of 3 done" in text
    assert "1 had changed" in text
    requested = coreapp.requested(core.PurgeCallbacks)[0]
    assert (sorted(requested.seqs), requested.choice) == ([callback(n).seq for n in range(3)], "status given up")
    assert re.fullmatch(r"admin \(console [0-9a-f]{16}\)", requested.by)
    assert requested.statuses == ["dead"]


async def test_pages_about_one_callback_speak_of_one(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1, attempt=9)])
    assert "1 callback is posted again" in (await browser.get("/console/callbacks/change?action=replay")).text
    page = "/console/callbacks/change?action=purge"
    text = (await browser.get(page)).text
    assert "1 callback is deleted and never posted" in text
    assert "Delete 1 callback</button>" in text
    coreapp.respond(core.PurgeCallbacks, lambda q: core.Purged(q.n, 0, 1))
    response = await browser.submit(page, "/console/callbacks/change", {"typed": "1"})
    assert "1 had changed, and stays as it is" in await finished(browser, response.headers["Location"])


async def test_a_purge_leaves_callbacks_that_came_after_its_count_was_shown(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(n, attempt=9) for n in range(3)])
    coreapp.respond(core.PurgeCallbacks, lambda q: core.Purged(q.n, len(q.seqs)))
    page, action = "/console/callbacks/change?action=purge", "/console/callbacks/change"
    shown = forms((await browser.get(page)).text)
    fields = next(form for form in shown if form.action == action).fields
    # Another one came after the count was shown.
    await store_callbacks(database, dead=[callback(9, attempt=9)])
    response = await browser.post(action, {**fields, "typed": "3"})
    assert "3 of 3 done" in await finished(browser, response.headers["Location"])
    assert sorted(coreapp.requested(core.PurgeCallbacks)[0].seqs) == [callback(n).seq for n in range(3)]


async def test_a_purge_never_takes_callbacks_of_another_status(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, pending=[callback(1)], dead=[callback(2)], done=[callback(3)])
    text = (await browser.get("/console/callbacks/change?action=purge&status=done")).text
    assert "No callback matches." in text
    token = forms(text)[0].fields["csrf"]
    fields = {"csrf": token, "action": "purge", "status": "done", "typed": "1", "below": str(callback(9).seq)}
    response = await browser.post("/console/callbacks/change", fields)
    assert response.headers["Location"] == "/console/callbacks?status=done"
    assert coreapp.requested(core.PurgeCallbacks) == []


async def test_each_number_has_two_changes_at_a_time_and_none_is_forgotten_before_its_end(
    console: Served, database: Database, coreapp: FakeCoreapp
) -> None:
    coreapp.refuse(core.ResendCallbacks, 1016, "busy", 300)
    changes = found_part(console, BulkChanges)
    one = SelectedCallbacks({(0, "given up"): [callback(1).seq]})

    async def start(account: str) -> str:
        return (await changes.start("replay", one, account=account, user="ann", choice="all")).id

    slow = [await start("15550000000"), await start("15550000000")]
    with pytest.raises(Overloaded):
        await start("15550000000")
    others = [await start("15559990000"), await start("15559990000")]
    await coreapp.until(lambda: len(coreapp.requested(core.ResendCallbacks)) == 4)
    await changes.stop("15559990000", slow[1])
    with pytest.raises(Overloaded):
        await start("15550000000")
    await changes.stop("15550000000", slow[1])
    await until_over(database, slow[1])
    replay_all(coreapp)
    for _ in range(30):
        await until_over(database, await start("15550000000"))
    async with database.reading() as connection:
        own = [each.id for each in await callback_changes.list_latest(connection, "15550000000", limit=100)]
        found = await callback_changes.list_latest(connection, "15559990000", limit=100)
    assert slow[0] in own
    assert len(own) == 21
    assert {each.id for each in found} == set(others)
    assert {str(each.state) for each in found} == {"running"}


async def until_over(database: Database, change_id: str) -> None:
    async def is_over() -> bool:
        async with database.reading() as connection:
            found = await callback_changes.find(connection, "15550000000", change_id)
        return found is not None and found.is_over

    await polling.until(is_over, pause=0.005)


async def test_another_webapp_shows_and_stops_a_change(
    serve: Serve, database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(n, attempt=9) for n in range(1_450)])
    replay_all(coreapp)
    there = Browser.of(await serve(console=True, console_key=OPERATOR_KEY, testing=True))
    await there.log_in()
    page = "/console/callbacks/change?action=replay"
    change = (await browser.submit(page, "/console/callbacks/change")).headers["Location"]
    await shows(browser, change, "of 1,450 done")
    response = await there.get(change)
    check_page(response)
    assert "in progress" in response.text
    assert f'href="{change}"' in (await there.get("/console/callbacks")).text
    stopped = await stop(there, change)
    assert (stopped.status_code, stopped.headers["Location"]) == (303, change)
    for each in (browser, there):
        text = await finished(each, change)
        assert ">stopped<" in text
        assert "/stop" not in text
    requested = len(requested_again(coreapp))
    await asyncio.sleep(1.2)  # longer than the pause between two pages
    assert len(requested_again(coreapp)) == requested <= 4
    await there.http.aclose()


async def test_a_change_that_waits_is_stopped_by_another_webapp(
    console: Served, database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ResendCallbacks, 1016, "busy", 300)
    response = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    change = response.headers["Location"]
    await shows(browser, change, "Waits for the Coreapp: busy")
    async with database.transaction() as connection:  # as another Webapp does it
        await callback_changes.stop(connection, "15550000000", change.rpartition("/")[2])
    assert "stops after the callbacks in progress" in (await browser.get(change)).text
    assert "0 of 1 done" in await finished(browser, change)


async def test_a_change_of_a_webapp_that_died_is_shown_as_ended(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1)])
    lost = [f"{n:016x}" for n in range(2)]
    async with database.transaction() as connection:
        for change_id in lost:
            row = CallbackChange(change_id, "15550000000", "purge", "all", f"ann (console {change_id})", 4, AT)
            await callback_changes.add(connection, row)
        await callback_changes.report(connection, lost[0], done=3, stay=0, waits="busy")
    page = f"/console/callbacks/changes/{lost[0]}"
    assert "in progress" in (await browser.get(page)).text
    reported_at = callback_changes.table.c.reported_at
    silences = (4_000, False, False), (8_000, True, False), (88_000, True, False), (22_000, False, True)
    for more, is_silent, is_lost in silences:
        async with database.transaction() as connection:
            await connection.execute(callback_changes.table.update().values(reported_at=reported_at - more))
        text = (await browser.get(page)).text
        assert ("silent for over 10 seconds" in text) is is_silent
        assert ("ended with its Webapp" in text) is is_lost
        assert ("silent for over 2 minutes" in text) is is_lost
        # It may still run.
        assert f'action="{page}/stop"' in text
    assert "3 of 4 done" in text
    assert "Waits for" not in text
    # The number may have further ones.
    replay_all(coreapp)
    response = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    assert "1 of 1 done" in await finished(browser, response.headers["Location"])


async def test_a_webapp_that_stops_ends_its_changes(
    console: Served, database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    await store_callbacks(database, dead=[callback(1)])
    coreapp.refuse(core.ResendCallbacks, 1016, "busy", 300)
    response = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    await coreapp.until(lambda: coreapp.requested(core.ResendCallbacks) != [])
    await end_changes(console)
    text = await finished(browser, response.headers["Location"])
    assert "Stopped by an error: the Webapp was stopped" in text


async def test_a_change_of_another_number_is_not_shown(database: Database, browser: Browser) -> None:
    async with database.transaction() as connection:
        row = CallbackChange("0" * 16, "15559990000", "purge", "all", "ann (console 0)", 4, AT)
        await callback_changes.add(connection, row)
    page = f"/console/callbacks/changes/{'0' * 16}"
    assert (await browser.get(page)).status_code == 404
    assert "0000000000000000" not in (await browser.get("/console/callbacks")).text
    for wrong in ("1", "é", "0" * 500):
        assert (await browser.get(f"/console/callbacks/changes/{wrong}")).status_code == 404


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
    response = await browser.submit(f"/console/callbacks/{callback(1).seq}", "/console/callbacks/replay")
    assert "1 of 1 done" in await finished(browser, response.headers["Location"])


async def test_the_audit_lists_replays_and_purges_newest_first(database: Database, browser: Browser) -> None:
    async with database.transaction() as connection:
        replays = [Replay(callback(n).seq, AT + 1000, 0, BY) for n in range(3)]
        await callback_replays.add(connection, [*replays, Replay(9, AT, 32, "another number")])
        await callback_purges.add(connection, CallbackPurgeRow(AT + 2000, 0, "<b>ann</b>", "status dead", 7))
    text = (await browser.get("/console/callbacks/audit")).text
    rows = re.findall(r'data-label="What">([^<]+)</td>\s*<td data-label="Callbacks">(\d+)</td>', text)
    assert rows == [("deleted", "7"), ("sent again", "3")]
    assert "&lt;b&gt;ann&lt;/b&gt;" in text
    assert "are not listed" not in text


async def test_the_audit_lists_contents_that_were_shown(database: Database, browser: Browser) -> None:
    async with database.transaction() as connection:
        for account, action, subject in (
            ("15550000000", AuditAction.SHOW_MESSAGE, "gBEGmine"),
            ("15550000000", AuditAction.SHOW_CALLBACK, "evt_<1>"),
            ("15559990000", AuditAction.SHOW_MESSAGE, "gBEGother"),
        ):
            at = AT + len(subject) * 1000
            entry = audit_entries.make(account, action, subject, by="ann (console)", at=at)
            await audit_entries.add(connection, entry)
    response = await browser.get("/console/callbacks/audit")
    check_page(response)
    rows = re.findall(
        r'data-label="Time \(UTC\)">.*?([\d-]+ [\d:]+)<.*?data-label="What">([^<]+)<.*?data-label="By">([^<]+)<'
        r'.*?data-label="Selection, id or number">([^<]+)<',
        response.text,
        re.DOTALL,
    )
    assert rows == [
        ("2026-05-28 20:26:48", "content of a message shown", "ann (console)", "gBEGmine"),
        ("2026-05-28 20:26:47", "body of a callback shown", "ann (console)", "evt_&lt;1&gt;"),
    ]


@pytest.mark.parametrize("event", ["", "evt_00112233445566778899aabbccddeeff"])
async def test_an_event_that_was_posted_again_before_is_replayed_once(
    console: Served, database: Database, event: str
) -> None:
    first = callback(1, event=event)
    # The same event, as a replay of an accepted callback stores it.
    again = callback(2, subject=first.subject, event=first.event_id)
    await store_callbacks(database, done=[first, again])
    selected = await found_part(console, BulkChanges).select("15550000000", CallbackFilter(), "replay")
    assert selected.seqs == {(0, "done"): [again.seq]}


async def test_an_event_that_waits_for_its_post_is_not_replayed(console: Served, database: Database) -> None:
    first = callback(1)
    again = callback(2, subject=first.subject, event=first.event_id)
    await store_callbacks(database, done=[first], pending=[again])
    selected = await found_part(console, BulkChanges).select("15550000000", CallbackFilter(), "replay")
    assert selected.seqs == {}


@pytest.mark.parametrize("error", [ConnectionResetError("reset"), asyncio.IncompleteReadError(b"", 4)])
async def test_a_connection_lost_during_a_report_does_not_end_a_change(
    database: Database,
    coreapp: FakeCoreapp,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    async def fail(*_: object, **__: object) -> bool:
        raise error

    monkeypatch.setattr(callback_changes, "report", fail)
    monkeypatch.setattr(bulk_changes, "_REPORT_RETRY_SECONDS", 0.0)
    await store_callbacks(database, dead=[callback(1), callback(2)])
    replay_all(coreapp)
    chosen = [str(callback(number).seq) for number in (1, 2)]
    response = await browser.submit("/console/callbacks", "/console/callbacks/replay", {"seq": chosen})
    text = await finished(browser, response.headers["Location"])
    assert "2 of 2 done" in text
    assert "the log of the Webapp has the cause" not in text
