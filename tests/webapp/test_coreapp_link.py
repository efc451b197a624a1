"""The link to the Coreapps: waiting, reconnecting, limits, and peers that are no Coreapps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from tests.coreapp.signals import soon
from tests.webapp.conftest import Serve, Served, body, code, errors
from tests.webapp.coreapp_links import Link, ScriptedMap, accept, noticed, owner, standby
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.aio import service
from tidings.net.exposure import LinkCalls
from tidings.wire import connection as wire
from tidings.wire import core
from webapp.coreapps import peer as peer_module
from webapp.coreapps.shard_map import FixedShardMap
from webapp.http.errors import CoreappRefused, CoreappUnavailable, CoreappUnreachable, Overloaded, RequestTooLarge


async def test_a_call_waits_for_a_coreapp_that_is_starting(link: Link) -> None:
    coreapp = FakeCoreapp()
    await coreapp.start()
    await coreapp.stop()
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    call = asyncio.create_task(accept(links))
    await coreapp.start()
    assert (await call).wa_id == "15550110001"
    await coreapp.stop()


async def test_a_call_without_a_coreapp_times_out_and_names_address_and_cause(link: Link) -> None:
    coreapp = FakeCoreapp()
    await coreapp.start()
    await coreapp.stop()
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=0.3)
    with pytest.raises(CoreappUnreachable, match=f"127.0.0.1:{coreapp.port} cannot be reached: Connection refused"):
        await accept(links)


async def test_a_remote_coreapp_requires_tls_unless_plaintext_is_allowed(link: Link) -> None:
    links = await link(FixedShardMap("core.invalid", 6252), owner_timeout=0.3)
    with pytest.raises(
        CoreappUnreachable, match=r"core\.invalid is not on this machine and TLS is not configured: set TIDINGS_TLS"
    ):
        await accept(links)
    links = await link(FixedShardMap("core.invalid", 6252), owner_timeout=0.3, calls=LinkCalls(plaintext=True))
    with pytest.raises(CoreappUnreachable) as caught:
        await accept(links)
    assert "TLS" not in str(caught.value)


async def test_a_stalled_coreapp_gets_no_requests_until_it_responds_again(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(peer_module, "PING_AFTER", 0.02)
    monkeypatch.setattr(peer_module, "DEAD_CHECKS", 1_000)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), owner_timeout=0.5)
    await accept(links)
    coreapp.stands_still = True
    [peer] = links.connections._peers.values()
    await soon(lambda: not peer.is_ready)
    with pytest.raises(CoreappUnreachable, match="does not respond"):
        await accept(links)
    assert len(coreapp.requested(core.AcceptMessage)) == 1
    call = asyncio.create_task(accept(links))
    coreapp.stands_still = False
    for connection in coreapp.connections:
        connection.send(core.Done(n=0))
    await call
    assert coreapp.greetings == 1, "the connection was kept"


async def test_the_connection_to_a_silent_coreapp_is_closed(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(peer_module, "PING_AFTER", 0.02)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    coreapp.stands_still = True
    with pytest.raises(CoreappUnavailable, match="closed the connection before it responded: silent for"):
        await accept(links)
    await coreapp.until(lambda: coreapp.greetings == 2)


async def test_a_stopping_coreapp_completes_open_requests_and_gets_no_new_ones(
    coreapp: FakeCoreapp, link: Link
) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    coreapp.respond(core.AcceptMessage, lambda request: None)
    first = asyncio.create_task(accept(links))
    await coreapp.until(lambda: len(coreapp.requested(core.AcceptMessage)) == 2)
    [connection] = coreapp.connections
    connection.send(core.ShutdownNotice(0))
    [peer] = links.connections._peers.values()
    await soon(lambda: not peer.is_ready)
    second = asyncio.create_task(accept(links))
    await asyncio.wait([second], timeout=0.2)
    assert len(coreapp.requested(core.AcceptMessage)) == 2
    assert connection.is_open
    coreapp.respond(core.AcceptMessage, lambda request: core.Accepted(request.n, "gBEG3", request.to))
    connection.send(core.Accepted(coreapp.requests[-1].n, "gBEG2", "15550110001"))
    assert (await first).id == "gBEG2"
    await soon(lambda: not connection.is_open)
    assert (await second).id == "gBEG3", "over the next connection"
    assert coreapp.greetings == 2


async def test_a_coreapp_of_a_release_without_pings_gets_none(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    coreapp.version = 0
    pulses = 0
    wait_for = service.wait_for

    async def counted(event: asyncio.Event, seconds: float) -> bool:
        nonlocal pulses
        pulses += 1
        return await wait_for(event, seconds)

    monkeypatch.setattr(service, "wait_for", counted)
    monkeypatch.setattr(peer_module, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(peer_module, "PING_AFTER", 0.02)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    seen = pulses
    await soon(lambda: pulses > seen + 5)
    await accept(links)
    assert coreapp.greetings == 1


async def test_requests_succeed_after_a_restart_of_the_coreapp(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    await coreapp.stop()
    await noticed()
    call = [asyncio.create_task(accept(links)) for _ in range(50)]
    await coreapp.start()
    assert len(await asyncio.gather(*call)) == 50
    assert len(coreapp.requested(core.AcceptMessage)) == 51


async def test_concurrent_requests_get_their_own_responses(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    responses = await asyncio.gather(*(accept(links, f"1555{n:07}") for n in range(2000)))
    assert [response.wa_id for response in responses] == [f"1555{n:07}" for n in range(2000)]


async def test_a_request_over_the_frame_limit_is_not_sent_and_others_continue(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    held: list[core.AcceptMessage] = []
    coreapp.respond(core.AcceptMessage, lambda q: held.append(q))
    call = asyncio.create_task(accept(links))
    await coreapp.until(lambda: bool(held))

    def restoring(size: int) -> Awaitable[core.Done]:
        return links.call_primary(
            lambda n: core.RestoreKeys(n=n, account="1", password="p", data="x" * size), core.Done
        )

    for size in (wire.MAX_FRAME, 3 * wire.MAX_FRAME):
        with pytest.raises(RequestTooLarge) as caught:
            await restoring(size)
        assert caught.value.status == 413
    await restoring(wire.MAX_FRAME - 100)
    assert len(coreapp.requested(core.RestoreKeys)) == 1
    for connection in coreapp.connections:
        connection.send(core.Accepted(n=held[0].n, id="x", wa_id=held[0].to))
    assert (await call).id == "x"
    assert coreapp.greetings == 1


async def test_a_request_without_a_response_times_out(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), timeout=0.2)
    coreapp.respond(core.AcceptMessage, lambda q: None)
    with pytest.raises(CoreappUnavailable, match="timed out"):
        await accept(links)


async def test_a_message_times_out_early_while_no_message_is_accepted(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), timeout=30.0, stall=0.2)
    coreapp.respond(core.AcceptMessage, lambda q: None)
    async with asyncio.timeout(5):
        with pytest.raises(CoreappUnavailable, match="timed out") as caught:
            await accept(links)
    assert caught.value.problems[0].code == 1014, "it may be accepted yet"
    # The connection stays: other requests on it still get their responses.
    assert coreapp.greetings == 1


async def test_a_slow_coreapp_that_accepts_messages_causes_no_early_timeout(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), timeout=30.0, stall=0.4)
    held: list[core.AcceptMessage] = []
    coreapp.respond(core.AcceptMessage, lambda q: held.append(q))
    first = asyncio.create_task(accept(links))
    await coreapp.until(lambda: bool(held))
    coreapp.respond(core.AcceptMessage, lambda q: core.Accepted(n=q.n, id="other", wa_id=q.to))
    for _ in range(5):
        await asyncio.wait([first], timeout=0.2)
        await accept(links)
    assert not first.done()
    for connection in coreapp.connections:
        connection.send(core.Accepted(n=held[0].n, id="late", wa_id=held[0].to))
    assert (await first).id == "late"


async def test_a_wrong_link_key_gets_no_connection(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port), key="wrong", owner_timeout=0.3)
    with pytest.raises(CoreappUnavailable):
        await accept(links)
    assert coreapp.greetings == 0
    assert not coreapp.requests


async def test_a_refusal_keeps_its_code_and_details(coreapp: FakeCoreapp, link: Link) -> None:
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    coreapp.refuse(core.AcceptMessage, 1016, "full", retry_after=3)
    with pytest.raises(CoreappRefused) as caught:
        await accept(links)
    assert caught.value.problems[0].code == 1016
    assert caught.value.retry_after == 3


async def test_calls_beyond_the_waiting_limit_are_refused_at_once(link: Link) -> None:
    links = await link(ScriptedMap(), owner_timeout=0.3, max_waiting=3)
    results = await asyncio.gather(*(accept(links) for _ in range(5)), return_exceptions=True)
    assert [type(result) for result in results] == [CoreappUnreachable] * 3 + [Overloaded] * 2


async def test_without_a_coreapp_the_api_returns_503_and_then_recovers(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(owner_timeout=0.3)
    await api.log_in()
    assert (await api.send()).status_code == 201
    await coreapp.stop()
    await noticed()
    for path, content in (("/v1/messages", body("message_text")), ("/v1/contacts", {"contacts": ["+15550110001"]})):
        response = await api.http.post(path, json=content)
        assert code(response) == (503, 1011)
        assert response.headers["Retry-After"] == "1"
        [error] = errors(response)
        assert error["title"] == "Service not ready"
        assert coreapp.address in error["details"]
    await coreapp.start()
    await coreapp.until(lambda: coreapp.greetings == 2)
    assert (await api.send()).status_code == 201


async def test_a_request_during_a_short_coreapp_outage_succeeds(api: Served, coreapp: FakeCoreapp) -> None:
    await coreapp.stop()
    await noticed()
    sending = asyncio.create_task(api.send())
    await coreapp.start()
    assert (await sending).status_code == 201


async def test_messages_in_flight_are_limited_and_other_requests_overtake_waiting_ones(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "MESSAGES", 2)
    monkeypatch.setattr(peer_module, "MAX_WAIT", 0.0)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    coreapp.respond(core.AcceptMessage, lambda request: None)
    call = [asyncio.create_task(accept(links, f"1555011000{n}")) for n in range(3)]
    await coreapp.until(lambda: len(coreapp.requested(core.AcceptMessage)) == 3)
    assert links.connections.is_overloaded(0.0)
    with pytest.raises(Overloaded, match="more messages arrive than can be accepted"):
        await accept(links)
    assert await links.call_primary(lambda n: core.GetHealth(n=n), core.Health)
    held = coreapp.requested(core.AcceptMessage)[1:]
    assert [request.to for request in held] == ["15550110000", "15550110001"]
    coreapp.respond(core.AcceptMessage, lambda request: core.Accepted(request.n, "later", request.to))
    for connection in coreapp.connections:
        for request in held:
            connection.send(core.Accepted(request.n, "held", request.to))
    assert [response.id for response in await asyncio.gather(*call)] == ["held", "held", "later"]
    assert not links.connections.is_overloaded(0.0)


async def test_only_shard_owners_count_for_load_shedding(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "MESSAGES", 1)
    monkeypatch.setattr(peer_module, "MAX_WAIT", 0.0)
    shard_map = ScriptedMap(owner(coreapp))
    shard_map.others = [standby("127.0.0.1:9")]
    links = await link(shard_map)
    await accept(links)
    coreapp.respond(core.AcceptMessage, lambda request: None)
    call = [asyncio.create_task(accept(links)) for _ in range(2)]
    await coreapp.until(lambda: len(coreapp.requested(core.AcceptMessage)) == 2)
    assert links.connections.is_overloaded(0.0)
    shard_map.now = [owner(coreapp), owner(None, shard=1)]
    await links.connections.run_once()
    assert not links.connections.is_overloaded(0.0)
    for task in call:
        task.cancel()
    await asyncio.gather(*call, return_exceptions=True)


async def test_waiting_messages_go_to_the_coreapp_after_a_restart(
    coreapp: FakeCoreapp, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "MESSAGES", 1)
    links = await link(FixedShardMap("127.0.0.1", coreapp.port))
    await accept(links)
    coreapp.respond(core.AcceptMessage, lambda request: None)
    first = asyncio.create_task(accept(links))
    await coreapp.until(lambda: len(coreapp.requested(core.AcceptMessage)) == 2)
    waiting = [asyncio.create_task(accept(links)) for _ in range(3)]
    await coreapp.stop()
    with pytest.raises(CoreappUnavailable):
        await first
    coreapp.respond(core.AcceptMessage, lambda request: core.Accepted(request.n, "after", request.to))
    await coreapp.start()
    assert [response.id for response in await asyncio.gather(*waiting)] == ["after"] * 3


async def test_an_overloaded_coreapp_gives_503_without_a_coreapp_call(
    served_api: Served, coreapp: FakeCoreapp, monkeypatch: pytest.MonkeyPatch
) -> None:
    [peer] = served_api.parts.links.connections._peers.values()
    monkeypatch.setattr(type(peer), "is_overloaded", lambda *_: True)
    count = len(coreapp.requested(core.AcceptMessage))
    refused = await served_api.send()
    assert (code(refused), refused.headers["Retry-After"]) == ((503, 1016), "1")
    assert refused.headers["X-Request-ID"]
    assert (await served_api.http.get("/v1/health")).status_code == 200
    assert len(coreapp.requested(core.AcceptMessage)) == count
    monkeypatch.setattr(type(peer), "is_overloaded", lambda *_: False)
    assert (await served_api.send()).status_code == 201
