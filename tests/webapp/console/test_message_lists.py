"""List of messages: filters in the URL, pages by key, and what one message shows."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests import statements
from tests.webapp.console.browser import Browser
from tests.webapp.console.lists import listed, older
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
from tidings.storage.business import callback_views, group_messages, messages, shards
from tidings.storage.business.group_messages import GroupReceipt
from tidings.storage.business.messages import Status
from tidings.storage.database import Database
from tidings.wire import core, ids


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
    response = await browser.get(f"/console/messages?{query}")
    assert response.status_code == 200
    assert listed(response.text) == [rows[number].id for number in numbers]


async def test_received_messages_have_a_list_of_their_own(database: Database, browser: Browser) -> None:
    received = message(1, id="ABGG0Vzzzzz0000000000000001", status=int(Status.RECEIVED))
    # Its id was derived from one of the Cloud API and has no time.
    of_upstream = message(3, id="ABGGz" + "7" * 22, status=int(Status.RECEIVED))
    sent = message(2)
    await store_messages(database, received, of_upstream, sent)
    assert listed((await browser.get("/console/messages")).text) == [sent.id]
    assert listed((await browser.get("/console/messages?direction=received")).text) == [of_upstream.id, received.id]


async def test_an_unreadable_time_is_named(browser: Browser) -> None:
    response = await browser.get("/console/messages?since=yesterday")
    assert response.status_code == 400
    assert "From (UTC)" in response.text


async def test_an_id_leads_to_its_message(database: Database, browser: Browser) -> None:
    row = message(1)
    await store_messages(database, row)
    response = await browser.get("/console/messages", params={"id": row.id})
    assert response.headers["Location"] == f"/console/messages/{row.id}"
    response = await browser.get("/console/messages", params={"id": "gBEGnone"})
    assert "There is no message with the id gBEGnone." in response.text


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


async def test_callbacks_about_a_message_are_found_below_many_younger_ones(
    database: Database, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_views, "EXAMINED", 10)
    monkeypatch.setattr(callback_views, "SEARCHED", 2)
    row = message(1)
    await store_messages(database, row)
    async with database.transaction() as connection:
        await messages.advance(connection, {row.id: Status.SENT}, AT + 2000)
        await messages.advance(connection, {row.id: Status.READ}, AT + 2_000_000)
    own = [callback(5, subject=row.id), callback(2_001, subject=row.id)]
    await store_callbacks(
        database,
        pending=[callback(n) for n in (*range(1_000, 1_300), *range(10_000, 10_300))],
        done=[*own, *(callback(100_000 * n) for n in range(1, 9))],
    )
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert set(listed(text)) == {str(one.seq) for one in own}


async def test_a_page_that_searches_a_part_of_the_callbacks_leads_to_the_rest(
    database: Database, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callback_views, "EXAMINED", 10)
    row = message(1)
    await store_messages(database, row)
    late = callback(9_000, subject=row.id)
    await store_callbacks(database, pending=[late, *(callback(n) for n in range(10_000, 10_300))])
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert listed(text) == []
    assert "No callback about this message is kept." not in text
    assert "No callback about this message is among those searched." in text
    (link,) = re.findall(r'href="(/console/callbacks\?id=[^"]+)"', text)
    assert int(link.partition("before=")[2]) < callback(10_299).seq
    seen: list[str] = []
    while link:
        page = (await browser.get(link.replace("&amp;", "&"))).text
        seen += listed(page)
        link = next(iter(re.findall(r'href="([^"]+)" rel="next"', page)), "")
    assert seen == [str(late.seq)]


async def test_only_callbacks_of_the_shard_of_a_message_are_searched(database: Database, browser: Browser) -> None:
    row = message(1)
    await store_messages(database, row)
    async with database.transaction() as connection:
        await shards.create_shards(connection, 4)
    with statements.sent() as noted:
        await browser.get(f"/console/messages/{row.id}")
    read = {next(iter(parameters)) for statement, parameters in noted if "FROM callbacks" in statement}
    assert read == {0}


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
    await fail_attempts(database, row, "the network is unreachable")
    text = (await browser.get(f"/console/messages/{row.id}")).text
    assert "Attempts to send failed" in text
    assert "3 × the network is unreachable" in text


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
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    row = message(1, kept=b"sealed")
    await store_messages(database, row)
    coreapp.respond(core.ShowMessage, lambda q: core.Shown(q.n, b'{"type":"text","text":{"body":"Guten Tag"}}'))
    page = f"/console/messages/{row.id}"
    assert "Guten Tag" not in (await browser.get(page)).text
    response = await browser.submit(page, f"{page}/content")
    assert "Guten Tag" in response.text
    requested = coreapp.requested(core.ShowMessage)
    assert [(one.id, one.by, one.shard) for one in requested] == [(row.id, "admin (console)", 0)]


async def test_a_content_that_cannot_be_shown_says_why(
    database: Database, coreapp: FakeCoreapp, browser: Browser
) -> None:
    row = message(1, kept=b"sealed")
    await store_messages(database, row)
    coreapp.refuse(core.ShowMessage, 1006, "it was delivered meanwhile")
    page = f"/console/messages/{row.id}"
    response = await browser.submit(page, f"{page}/content")
    assert response.status_code == 409
    assert "it was delivered meanwhile" in response.text


async def test_the_filter_of_received_messages_offers_those_without_content(
    database: Database, browser: Browser
) -> None:
    first = message(1, id=ids.bound_of_received(AT / 1000) + "0" * 16, kind="null", status=int(Status.RECEIVED))
    await store_messages(database, first)
    received = (await browser.get("/console/messages?direction=received&type=null")).text
    assert '<option value="null" selected>' in received
    assert listed(received) == [first.id]
    assert 'value="null"' not in (await browser.get("/console/messages")).text
