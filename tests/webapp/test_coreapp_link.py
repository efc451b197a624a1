"""The link to the Coreapps: waiting, reconnecting, following the shard map, and what is asked again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from harness import metrics
from tests.coreapp.signals import soon
from tests.webapp.conftest import Serve, Served, body, code, errors
from tests.webapp.fake_coreapp import LINK_KEY, FakeCoreapp
from tidings.runtime.exposure import LinkCalls
from tidings.storage.business import shards
from tidings.storage.business.nodes import Member
from tidings.storage.business.shards import Owner
from tidings.storage.database import Database
from tidings.wire import addresses, core
from tidings.wire import connection as wire
from webapp import coreapp_link, coreapp_peer
from webapp.coreapp_link import CoreappLinks
from webapp.errors import CoreappAway, CoreappRefused, CoreappUnreachable, Overloaded, QuestionTooLarge
from webapp.shard_map import DatabaseShardMap, FixedShardMap, ShardMap


class ScriptedMap:
    """A shard map that the test changes."""

    def __init__(self, *owners: Owner) -> None:
        self.now: Sequence[Owner] | Exception = owners

    async def owners(self) -> Sequence[Owner]:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    async def members(self) -> Sequence[Member]:
        return []


def owner(coreapp: FakeCoreapp | None, shard: int = 0, epoch: int = 1) -> Owner:
    return Owner(shard, "node", coreapp.address if coreapp else "", epoch)


Link = Callable[..., Awaitable[CoreappLinks]]


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(
            shard_map: ShardMap, key: str = LINK_KEY, patience: float = 5.0, timeout: float = 5.0, **options: Any
        ) -> CoreappLinks:
            links = CoreappLinks(shard_map, key, patience=patience, timeout=timeout, **options)
            stop = asyncio.Event()
            running = asyncio.create_task(links.run(stop))

            async def end() -> None:
                stop.set()
                await running

            stack.push_async_callback(end)
            return links

        yield start


async def accept(links: CoreappLinks, to: str = "15550110001") -> core.Accepted:
    return await links.ask(
        to, lambda n: core.AcceptMessage(n=n, account="1", to=to, kind="text", content=b"{}"), core.Accepted
    )


async def accept_once(links: CoreappLinks, to: str = "15550110001") -> core.Accepted:
    """As a request does: under an id, and asked again when no answer comes."""

    def make(n: int, *, repeated: bool = False) -> core.AcceptMessage:
        return core.AcceptMessage(
            n=n, account="1", to=to, kind="text", content=b"{}", id="gBEG-of-the-webapp", repeated=repeated
        )

    return await links.ask(to, make, core.Accepted, again=lambda n: make(n, repeated=True))


async def check_contact(links: CoreappLinks) -> core.Contacts:
    return await links.ask_first_safely(
        lambda n: core.CheckContacts(n=n, account="1", inputs=["15550110001"]), core.Contacts
    )


async def noticed() -> None:
    """Wait until the loss of every connection has been seen."""
    await soon(lambda: not metrics.value("tidings_webapp_coreapps_connected"))


def cut(links: CoreappLinks) -> None:
    """Lose the only connection at the end of this turn of the loop, before what it holds is written."""
    [peer] = links._peers.values()
    assert peer._connection is not None
    asyncio.get_running_loop().call_soon(peer._connection.abort, "cut by the test")


def of_shard(shard: int, count: int) -> str:
    return next(str(n) for n in range(15550110000, 15550119999) if addresses.shard_of(str(n), count) == shard)


async def test_a_question_waits_for_a_coreapp_that_is_still_starting(link: Link) -> None:
    coreapp = FakeCoreapp()
    await coreapp.start()
    await coreapp.stop()
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    asking = asyncio.create_task(accept(links))
    await coreapp.start()
    assert (await asking).wa_id == "15550110001"
    await coreapp.stop()


async def test_patience_ends_and_names_the_address_and_the_cause(link: Link) -> None:
    coreapp = FakeCoreapp()
    await coreapp.start()
    await coreapp.stop()
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=0.3)
    with pytest.raises(CoreappUnreachable, match=f"127.0.0.1:{coreapp.port} cannot be reached: Connection refused"):
        await accept(links)


async def test_a_coreapp_elsewhere_is_not_spoken_to_in_the_clear_unless_that_is_asked_for(link: Link) -> None:
    links = await link(FixedShardMap("core.invalid", 6252), patience=0.3)
    with pytest.raises(
        CoreappUnreachable, match=r"core\.invalid is not on this machine and there is no TLS: set TIDINGS_TLS"
    ):
        await accept(links)
    links = await link(FixedShardMap("core.invalid", 6252), patience=0.3, calls=LinkCalls(plaintext=True))
    with pytest.raises(CoreappUnreachable) as caught:
        await accept(links)
    assert "TLS" not in str(caught.value)


async def test_a_question_that_was_sent_is_never_sent_again(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    coreapp.answer(core.AcceptMessage, lambda q: coreapp.drop())
    with pytest.raises(CoreappAway, match="went away before it answered") as caught:
        await accept(links)
    assert caught.value.problems[0].code == 1014
    await coreapp.until(lambda: coreapp.greetings == 2)
    assert len(coreapp.asked(core.AcceptMessage)) == 1


async def test_a_message_whose_answer_was_lost_is_asked_for_again_under_its_id(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    asked = len(coreapp.asked(core.AcceptMessage))

    def lost_once(question: core.AcceptMessage) -> core.Frame | None:
        if not question.repeated:
            return coreapp.drop()
        return core.Accepted(n=question.n, id=question.id, wa_id=question.to)

    coreapp.answer(core.AcceptMessage, lost_once)
    assert (await accept_once(links)).id == "gBEG-of-the-webapp"
    first, again = coreapp.asked(core.AcceptMessage)[asked:]
    assert (first.id, first.repeated, again.id, again.repeated) == (again.id, False, first.id, True)


async def test_a_message_whose_answer_was_lost_and_whom_nobody_can_ask_again_is_in_doubt(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=0.5)

    def gone(question: core.AcceptMessage) -> None:
        coreapp.take_no_more()
        coreapp.drop()

    coreapp.answer(core.AcceptMessage, gone)
    with pytest.raises(CoreappAway, match="went away before it answered") as caught:
        await accept_once(links)
    assert (type(caught.value), caught.value.problems[0].code) == (CoreappAway, 1014)


async def test_a_read_whose_answer_was_lost_is_never_in_doubt(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=0.5)
    answers = iter((False, True))

    def lost_once(question: core.CheckContacts) -> core.Frame | None:
        return core.Contacts(n=question.n, contacts=[]) if next(answers) else coreapp.drop()

    coreapp.answer(core.CheckContacts, lost_once)
    assert (await check_contact(links)).contacts == []

    def gone(question: core.CheckContacts) -> None:
        coreapp.take_no_more()
        coreapp.drop()

    coreapp.answer(core.CheckContacts, gone)
    with pytest.raises(CoreappUnreachable) as caught:
        await check_contact(links)
    assert (caught.value.problems[0].code, caught.value.retry_after) == (1011, 1)


async def test_what_a_coreapp_says_of_a_message_asked_for_again_settles_it_unless_it_does_not_know(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=0.6)

    def answering(code: int, unknown: bool) -> None:
        def answer(question: core.AcceptMessage) -> core.Frame | None:
            if not question.repeated:
                return coreapp.drop()
            return core.Refused(n=question.n, code=code, details="no", retry_after=1, unknown=unknown)

        coreapp.answer(core.AcceptMessage, answer)

    answering(1016, unknown=False)
    with pytest.raises(CoreappRefused, match="1016 no"):
        await accept_once(links)
    for temporary in (1011, 1014, 1018):
        answering(temporary, unknown=True)
        with pytest.raises(CoreappAway) as caught:
            await accept_once(links)
        assert (type(caught.value), caught.value.problems[0].code) == (CoreappAway, 1014)


async def test_a_coreapp_that_does_not_know_whether_it_wrote_a_message_is_asked_again(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))

    def broke_off(question: core.AcceptMessage) -> core.Frame:
        if not question.repeated:
            return core.Refused(n=question.n, code=1014, details="the database broke off", unknown=True)
        return core.Accepted(n=question.n, id=question.id, wa_id=question.to)

    coreapp.answer(core.AcceptMessage, broke_off)
    assert (await accept_once(links)).id == "gBEG-of-the-webapp"
    # One that cannot be recognised is not.
    with pytest.raises(CoreappRefused, match="1014 the database broke off"):
        await accept(links)


async def test_a_question_over_which_coreapps_break_is_not_asked_for_ever(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=30)
    coreapp.answer(core.AcceptMessage, lambda q: coreapp.drop())
    async with asyncio.timeout(10):
        with pytest.raises(CoreappAway):
            await accept_once(links)
    assert len(coreapp.asked(core.AcceptMessage)) == 3


async def test_nothing_is_sent_to_a_coreapp_that_stands_still_and_it_is_asked_when_it_goes_on(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coreapp_peer, "PULSE", 0.02)
    monkeypatch.setattr(coreapp_peer, "QUIET", 0.02)
    monkeypatch.setattr(coreapp_peer, "DEAD", 1_000)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=0.5)
    await accept(links)
    coreapp.stands_still = True
    [peer] = links._peers.values()
    await soon(lambda: not peer.is_ready)
    with pytest.raises(CoreappUnreachable, match="does not answer"):
        await accept(links)
    assert len(coreapp.asked(core.AcceptMessage)) == 1
    asking = asyncio.create_task(accept(links))
    coreapp.stands_still = False
    for connection in coreapp.connections:
        connection.send(core.Done(n=0))
    await asking
    assert coreapp.greetings == 1, "the connection was kept"


async def test_the_connection_to_a_coreapp_that_stays_silent_is_given_up(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coreapp_peer, "PULSE", 0.02)
    monkeypatch.setattr(coreapp_peer, "QUIET", 0.02)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    coreapp.stands_still = True
    with pytest.raises(CoreappAway, match="went away before it answered: silent for"):
        await accept(links)
    await coreapp.until(lambda: coreapp.greetings == 2)


async def test_a_question_whose_connection_is_lost_before_it_is_written_goes_to_the_next_one(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    asking = [asyncio.create_task(accept(links)) for _ in range(3)]
    # They have put their questions into the connection's buffer, which is written at the end of the turn.
    cut(links)
    assert len(await asyncio.gather(*asking)) == 3
    assert len(coreapp.asked(core.AcceptMessage)) == 4


async def test_without_a_coreapp_to_go_to_a_question_that_was_not_written_says_that_nothing_was_done(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=0.3)
    await accept(links)
    asking = asyncio.create_task(accept(links))
    cut(links)
    coreapp.take_no_more()
    with pytest.raises(CoreappUnreachable) as caught:
        await asking
    assert (caught.value.problems[0].code, caught.value.retry_after) == (1011, 1)
    assert len(coreapp.asked(core.AcceptMessage)) == 1


async def test_after_a_restart_of_the_coreapp_questions_are_answered_again(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    await coreapp.stop()
    await noticed()
    asking = [asyncio.create_task(accept(links)) for _ in range(50)]
    await coreapp.start()
    assert len(await asyncio.gather(*asking)) == 50
    assert len(coreapp.asked(core.AcceptMessage)) == 51


async def test_many_questions_at_a_time_get_each_its_own_answer(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    answers = await asyncio.gather(*(accept(links, f"1555{n:07}") for n in range(2000)))
    assert [answer.wa_id for answer in answers] == [f"1555{n:07}" for n in range(2000)]


async def test_a_question_over_the_limit_is_not_sent_and_the_others_go_on(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    held: list[core.AcceptMessage] = []
    coreapp.answer(core.AcceptMessage, lambda q: held.append(q))
    asking = asyncio.create_task(accept(links))
    await coreapp.until(lambda: bool(held))

    def restoring(size: int) -> Awaitable[core.Done]:
        return links.ask_first(lambda n: core.RestoreKeys(n=n, account="1", password="p", data="x" * size), core.Done)

    for size in (wire.MAX_FRAME, 3 * wire.MAX_FRAME):
        with pytest.raises(QuestionTooLarge) as caught:
            await restoring(size)
        assert caught.value.status == 413
    await restoring(wire.MAX_FRAME - 100)
    assert len(coreapp.asked(core.RestoreKeys)) == 1
    for connection in coreapp.connections:
        connection.send(core.Accepted(n=held[0].n, id="x", wa_id=held[0].to))
    assert (await asking).id == "x"
    assert coreapp.greetings == 1


async def test_a_question_without_an_answer_is_given_up_after_the_timeout(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), timeout=0.2)
    coreapp.answer(core.AcceptMessage, lambda q: None)
    with pytest.raises(CoreappAway, match="timed out"):
        await accept(links)


async def test_while_no_message_at_all_is_accepted_one_is_given_up_soon(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), timeout=30.0, stall=0.2)
    coreapp.answer(core.AcceptMessage, lambda q: None)
    async with asyncio.timeout(5):
        with pytest.raises(CoreappAway, match="timed out") as caught:
            await accept(links)
    assert caught.value.problems[0].code == 1014, "it may be accepted yet"
    # The connection is not to blame: what else was asked on it is still answered.
    assert coreapp.greetings == 1


async def test_a_coreapp_that_is_slow_and_accepts_messages_is_waited_for(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), timeout=30.0, stall=0.4)
    held: list[core.AcceptMessage] = []
    coreapp.answer(core.AcceptMessage, lambda q: held.append(q))
    first = asyncio.create_task(accept(links))
    await coreapp.until(lambda: bool(held))
    coreapp.answer(core.AcceptMessage, lambda q: core.Accepted(n=q.n, id="other", wa_id=q.to))
    for _ in range(5):
        await asyncio.wait([first], timeout=0.2)
        await accept(links)
    assert not first.done()
    for connection in coreapp.connections:
        connection.send(core.Accepted(n=held[0].n, id="late", wa_id=held[0].to))
    assert (await first).id == "late"


async def test_a_wrong_link_key_is_no_connection(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), key="wrong", patience=0.3)
    with pytest.raises(CoreappAway):
        await accept(links)
    assert coreapp.greetings == 0
    assert not coreapp.questions


async def test_a_refusal_keeps_its_code_and_details(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    coreapp.refuse(core.AcceptMessage, 1016, "full", retry_after=3)
    with pytest.raises(CoreappRefused) as caught:
        await accept(links)
    assert caught.value.problems[0].code == 1016
    assert caught.value.retry_after == 3


async def test_more_than_may_wait_are_refused_at_once(link: Link) -> None:
    links = await link(ScriptedMap(), patience=0.3, max_waiting=3)
    results = await asyncio.gather(*(accept(links) for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [CoreappUnreachable] * 3 + [Overloaded] * 2


async def test_a_message_in_doubt_stays_so_when_too_many_wait_to_ask_again(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), max_waiting=0)
    await soon(lambda: any(peer.is_ready for peer in links._peers.values()))
    coreapp.answer(
        core.AcceptMessage,
        lambda question: core.Refused(n=question.n, code=1014, details="the database broke off", unknown=True),
    )
    with pytest.raises(CoreappAway) as caught:
        await accept_once(links)
    assert (type(caught.value), caught.value.problems[0].code) == (CoreappAway, 1014)


async def test_a_message_that_has_waited_for_an_owner_has_the_rest_of_its_time_for_the_answer(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coreapp_link, "LONG_WAIT", 0.0)
    monkeypatch.setattr(coreapp_link, "LEAST_TIMEOUT", 0.1)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=0.5, timeout=60.0, stall=60.0)
    coreapp.answer(core.AcceptMessage, lambda question: None)
    async with asyncio.timeout(10):
        with pytest.raises(CoreappAway, match="timed out"):
            await accept_once(links)


async def test_each_recipient_goes_to_the_owner_of_its_shard(link: Link) -> None:
    coreapps = [await FakeCoreapp().start() for _ in range(2)]
    links = await link(ScriptedMap(*(owner(coreapp, shard) for shard, coreapp in enumerate(coreapps))))
    for shard in range(2):
        await accept(links, of_shard(shard, 2))
    await links.ask_first(lambda n: core.CheckContacts(n=n, account="1", inputs=["1"]), core.Contacts)
    assert [len(coreapp.asked(core.AcceptMessage)) for coreapp in coreapps] == [1, 1]
    assert [len(coreapp.asked(core.CheckContacts)) for coreapp in coreapps] == [1, 0]
    for coreapp in coreapps:
        await coreapp.stop()


async def test_questions_follow_a_shard_to_its_new_owner(link: Link) -> None:
    old, new = await FakeCoreapp().start(), await FakeCoreapp().start()
    shard_map = ScriptedMap(owner(old))
    links = await link(shard_map)
    await accept(links)
    shard_map.now = [owner(new, epoch=2)]
    await links.run_once()
    await accept(links)
    assert [len(each.asked(core.AcceptMessage)) for each in (old, new)] == [1, 1]
    await old.stop()
    await new.stop()


async def test_an_answer_of_the_old_owner_still_counts_after_the_shard_moved(link: Link) -> None:
    old, new = await FakeCoreapp().start(), await FakeCoreapp().start()
    shard_map = ScriptedMap(owner(old))
    links = await link(shard_map)
    held: list[core.AcceptMessage] = []
    old.answer(core.AcceptMessage, lambda q: held.append(q))
    asking = asyncio.create_task(accept(links))
    await old.until(lambda: bool(held))
    shard_map.now = [owner(new, epoch=2)]
    await links.run_once()
    for connection in old.connections:
        connection.send(core.Accepted(n=held[0].n, id="late", wa_id=held[0].to))
    assert (await asking).id == "late"
    await old.stop()
    await new.stop()


async def test_who_is_not_the_owner_any_more_says_so_and_the_new_one_is_asked(link: Link) -> None:
    old, new = await FakeCoreapp().start(), await FakeCoreapp().start()
    shard_map = ScriptedMap(owner(old))
    links = await link(shard_map)

    def moved(question: core.AcceptMessage) -> core.Frame:
        shard_map.now = [owner(new, epoch=2)]
        return core.Refused(n=question.n, code=1018, details="not the owner")

    old.answer(core.AcceptMessage, moved)
    assert (await accept(links)).wa_id == "15550110001"
    assert len(new.asked(core.AcceptMessage)) == 1
    await old.stop()
    await new.stop()


async def test_a_coreapp_that_does_not_own_its_shard_yet_is_asked_again(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    refused = 0

    def not_yet(question: core.AcceptMessage) -> core.Frame:
        nonlocal refused
        refused += 1
        if refused <= 2:
            return core.Refused(n=question.n, code=1018, details="not the owner", retry_after=1)
        return core.Accepted(n=question.n, id="x", wa_id=question.to)

    coreapp.answer(core.AcceptMessage, not_yet)
    assert (await accept(links)).id == "x"


async def test_a_coreapp_that_never_owns_its_shard_is_a_refusal_in_the_end(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), patience=0.4)
    coreapp.refuse(core.AcceptMessage, 1018, "not the owner", retry_after=1)
    with pytest.raises(CoreappRefused, match="1018 not the owner"):
        await accept(links)


async def test_a_map_that_cannot_be_read_keeps_what_is_known(coreapp: FakeCoreapp, link: Link) -> None:
    shard_map = ScriptedMap(owner(coreapp))
    links = await link(shard_map)
    await accept(links)
    shard_map.now = ConnectionError("no database")
    await links.run_once()
    await accept(links)


async def test_the_map_of_the_database_is_followed(coreapp: FakeCoreapp, database: Database, link: Link) -> None:
    links = await link(DatabaseShardMap(database), patience=10)
    async with database.transaction() as connection:
        await shards.create_shards(connection, 1)
        assert await shards.claim(connection, 0, owner="node", address=coreapp.address, silence=30)
    await links.run_once()
    assert (await accept(links)).wa_id == "15550110001"


async def test_asking_all_waits_for_nobody_who_is_away(coreapp: FakeCoreapp, link: Link) -> None:
    gone = await FakeCoreapp().start()
    await gone.stop()
    links = await link(ScriptedMap(owner(coreapp), owner(gone, 1), owner(None, 2)))
    await accept(links, of_shard(0, 3))
    answers = await links.ask_all(lambda n: core.GetHealth(n=n), core.Health, timeout=5)
    assert sorted(type(answer).__name__ for answer in answers) == ["CoreappUnreachable", "CoreappUnreachable", "Health"]


async def test_the_api_says_that_nothing_was_done_while_the_coreapp_is_away_and_recovers_by_itself(
    serve: Serve, coreapp: FakeCoreapp
) -> None:
    api = await serve(coreapp_patience=0.3)
    await api.log_in()
    assert (await api.send()).status_code == 201
    await coreapp.stop()
    await noticed()
    for path, content in (("/v1/messages", body("message_text")), ("/v1/contacts", {"contacts": ["+15550110001"]})):
        answer = await api.http.post(path, json=content)
        assert code(answer) == (503, 1011)
        assert answer.headers["Retry-After"] == "1"
        [error] = errors(answer)
        assert error["title"] == "Service not ready"
        assert coreapp.address in error["details"]
    await coreapp.start()
    await coreapp.until(lambda: coreapp.greetings == 2)
    assert (await api.send()).status_code == 201


async def test_a_request_that_comes_in_a_short_gap_does_not_notice_it(api: Served, coreapp: FakeCoreapp) -> None:
    await coreapp.stop()
    await noticed()
    sending = asyncio.create_task(api.send())
    await coreapp.start()
    assert (await sending).status_code == 201
