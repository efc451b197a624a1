"""Coreapp calls whose response, or whose connection, was lost: done, not done, or unknown."""

from __future__ import annotations

import asyncio

import pytest

from tests.coreapp.signals import soon
from tests.webapp.coreapp_links import Link, accept, accept_once, check_contact, cut
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.wire import core
from webapp.coreapps.shard_map import FixedShardMap
from webapp.http.errors import CoreappRefused, CoreappUnavailable, CoreappUnreachable


async def test_a_sent_request_is_never_resent(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    coreapp.respond(core.AcceptMessage, lambda q: coreapp.drop())
    with pytest.raises(CoreappUnavailable, match="closed the connection before it responded") as caught:
        await accept(links)
    assert caught.value.problems[0].code == 1014
    await coreapp.until(lambda: coreapp.greetings == 2)
    assert len(coreapp.requested(core.AcceptMessage)) == 1


async def test_a_message_with_a_lost_response_is_requested_again_under_its_id(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    count = len(coreapp.requested(core.AcceptMessage))

    def lost_once(request: core.AcceptMessage) -> core.Frame | None:
        if not request.repeated:
            return coreapp.drop()
        return core.Accepted(n=request.n, id=request.id, wa_id=request.to)

    coreapp.respond(core.AcceptMessage, lost_once)
    assert (await accept_once(links)).id == "gBEG-of-the-webapp"
    first, again = coreapp.requested(core.AcceptMessage)[count:]
    assert (first.id, first.repeated, again.id, again.repeated) == (again.id, False, first.id, True)


async def test_a_lost_response_without_a_coreapp_for_a_repeat_gives_1014(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=0.5)

    def gone(request: core.AcceptMessage) -> None:
        coreapp.take_no_more()
        coreapp.drop()

    coreapp.respond(core.AcceptMessage, gone)
    with pytest.raises(CoreappUnavailable, match="closed the connection before it responded") as caught:
        await accept_once(links)
    assert (type(caught.value), caught.value.problems[0].code) == (CoreappUnavailable, 1014)


async def test_a_read_request_with_a_lost_response_is_repeated_or_gives_1011(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=0.5)
    responses = iter((False, True))

    def lost_once(request: core.CheckContacts) -> core.Frame | None:
        return core.Contacts(n=request.n, contacts=[]) if next(responses) else coreapp.drop()

    coreapp.respond(core.CheckContacts, lost_once)
    assert (await check_contact(links)).contacts == []

    def gone(request: core.CheckContacts) -> None:
        coreapp.take_no_more()
        coreapp.drop()

    coreapp.respond(core.CheckContacts, gone)
    with pytest.raises(CoreappUnreachable) as caught:
        await check_contact(links)
    assert (caught.value.problems[0].code, caught.value.retry_after) == (1011, 1)


async def test_the_response_to_a_repeat_is_final_unless_the_outcome_is_unknown(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=0.6)

    def refuse_with(code: int, unknown: bool) -> None:
        def respond(request: core.AcceptMessage) -> core.Frame | None:
            if not request.repeated:
                return coreapp.drop()
            return core.Refused(n=request.n, code=code, details="no", retry_after=1, unknown=unknown)

        coreapp.respond(core.AcceptMessage, respond)

    refuse_with(1016, unknown=False)
    with pytest.raises(CoreappRefused, match="1016 no"):
        await accept_once(links)
    for temporary in (1011, 1014, 1018):
        refuse_with(temporary, unknown=True)
        with pytest.raises(CoreappUnavailable) as caught:
            await accept_once(links)
        assert (type(caught.value), caught.value.problems[0].code) == (CoreappUnavailable, 1014)


async def test_a_message_with_an_unknown_outcome_at_the_coreapp_is_repeated(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))

    def broke_off(request: core.AcceptMessage) -> core.Frame:
        if not request.repeated:
            return core.Refused(n=request.n, code=1014, details="the database failed", unknown=True)
        return core.Accepted(n=request.n, id=request.id, wa_id=request.to)

    coreapp.respond(core.AcceptMessage, broke_off)
    assert (await accept_once(links)).id == "gBEG-of-the-webapp"
    # A call that cannot be recognised is not repeated.
    with pytest.raises(CoreappRefused, match="1014 the database failed"):
        await accept(links)


async def test_a_request_that_keeps_breaking_the_connection_is_sent_three_times(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=30)
    coreapp.respond(core.AcceptMessage, lambda q: coreapp.drop())
    async with asyncio.timeout(30):
        with pytest.raises(CoreappUnavailable):
            await accept_once(links)
    assert len(coreapp.requested(core.AcceptMessage)) == 3


async def test_a_request_unwritten_at_disconnect_goes_over_the_next_connection(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    call = [asyncio.create_task(accept(links)) for _ in range(3)]
    # The requests are in the connection's buffer, which is written at the end of the event-loop iteration.
    cut(links)
    assert len(await asyncio.gather(*call)) == 3
    assert len(coreapp.requested(core.AcceptMessage)) == 4


async def test_an_unwritten_request_without_another_coreapp_gives_1011(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=0.3)
    await accept(links)
    call = asyncio.create_task(accept(links))
    cut(links)
    coreapp.take_no_more()
    with pytest.raises(CoreappUnreachable) as caught:
        await call
    assert (caught.value.problems[0].code, caught.value.retry_after) == (1011, 1)
    assert len(coreapp.requested(core.AcceptMessage)) == 1


async def test_an_unknown_outcome_stays_unknown_if_too_many_calls_wait(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), max_waiting=0)
    await soon(lambda: any(peer.is_ready for peer in links.connections._peers.values()))
    coreapp.respond(
        core.AcceptMessage,
        lambda request: core.Refused(n=request.n, code=1014, details="the database failed", unknown=True),
    )
    with pytest.raises(CoreappUnavailable) as caught:
        await accept_once(links)
    assert (type(caught.value), caught.value.problems[0].code) == (CoreappUnavailable, 1014)


async def test_a_coreapp_release_without_repeats_gets_no_repeated_message(coreapp: FakeCoreapp, link: Link) -> None:
    coreapp.version = 0
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    coreapp.respond(core.AcceptMessage, lambda q: coreapp.drop())
    with pytest.raises(CoreappUnavailable) as caught:
        await accept_once(links)
    assert (type(caught.value), caught.value.problems[0].code) == (CoreappUnavailable, 1014)
    assert len(coreapp.requested(core.AcceptMessage)) == 1
