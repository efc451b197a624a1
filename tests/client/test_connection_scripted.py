"""Device client with a network that is late, wrong, unavailable or gone."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.support import Recorder, ScriptedNetwork
from tidings.client import connection, held_back
from tidings.client.errors import NetworkUnavailable
from tidings.wire import device
from tidings.wire.connection import Handler

ANN, BEN = "15550100001", "15550100002"


def welcome(frame: Any) -> Any:
    return device.Ok(frame.n) if isinstance(frame, device.Login) else None


async def client_of(scripted: ScriptedNetwork, *numbers: str, **options: Any) -> Recorder:
    client = Recorder(await scripted.start(), **options)
    for number in numbers:
        client.connection.log_in(number, f"token of {number}")
    return client


async def test_logins_in_flight_are_limited(scripted: ScriptedNetwork) -> None:
    numbers = [str(15550100000 + n) for n in range(connection.LOGINS_IN_FLIGHT + 2)]
    client = await client_of(scripted, *numbers)
    async with client.running(ready=False):
        logins = await scripted.until_sent(device.Login, connection.LOGINS_IN_FLIGHT)
        scripted.send_frame(device.Ok(logins[0].n))
        logins = await scripted.until_sent(device.Login, connection.LOGINS_IN_FLIGHT + 1)
        assert len(logins) == connection.LOGINS_IN_FLIGHT + 1
        scripted.respond = welcome
        for login in logins[1:]:
            scripted.send_frame(device.Ok(login.n))
        await client.until_event("ready")
    assert {event[1] for event in client.events if event[0] == "attached"} == set(numbers)


async def test_the_bytes_of_sends_in_flight_are_limited(scripted: ScriptedNetwork) -> None:
    scripted.respond = welcome
    body = bytes(1024 * 1024)
    async with (await client_of(scripted, ANN)).running() as client:
        for number in range(12):
            client.send(ANN, BEN, str(number), body=body)
        sends = await scripted.until_sent(device.Send, 8)
        await asyncio.sleep(0.05)
        assert len(scripted.sent(device.Send)) == 8
        scripted.send_frame(device.Accepted([sends[0].n]))
        scripted.send_frame(device.Refused(sends[1].n, device.BLOCKED))
        sends = await scripted.until_sent(device.Send, 10)
        client.connection.log_out(ANN)
        await asyncio.sleep(0.05)
        assert [send.id for send in scripted.sent(device.Send)] == [str(number) for number in range(10)]


async def test_a_device_that_logs_out_during_its_login_is_logged_out_after_it(scripted: ScriptedNetwork) -> None:
    client = await client_of(scripted, ANN, BEN)
    async with client.running(ready=False):
        first, second = await scripted.until_sent(device.Login, 2)
        client.connection.log_out(ANN)
        await asyncio.sleep(0.05)
        assert not scripted.sent(device.Logout)
        scripted.send_frame(device.Ok(first.n))
        scripted.send_frame(device.Ok(second.n))
        (logout,) = await scripted.until_sent(device.Logout, 1)
        assert logout.number == ANN
        scripted.send_frame(device.Ok(logout.n))
        await client.until_event("logged out", ANN)
        # Without a connection it is logged out at once.
        scripted.respond = welcome
        scripted.connections[-1].abort("test")
        await client.until(lambda: client.count("lost") == 1)
    assert ("attached", ANN) not in client.events
    assert ("attached", BEN) in client.events


async def test_sends_in_flight_are_limited_and_the_rest_keep_their_order(scripted: ScriptedNetwork) -> None:
    scripted.respond = welcome
    limit = connection.SENDS_IN_FLIGHT
    async with (await client_of(scripted, ANN)).running() as client:
        for number in range(limit + 3):
            client.send(ANN, BEN, str(number))
        sends = await scripted.until_sent(device.Send, limit)
        # One send gets two responses, the other a refusal: each makes room for one more.
        scripted.send_frame(device.Accepted([sends[5].n, sends[5].n]))
        scripted.send_frame(device.Refused(sends[0].n, device.BLOCKED))
        sends = await scripted.until_sent(device.Send, limit + 2)
        assert [send.id for send in sends] == [str(number) for number in range(limit + 2)]
        await client.until_event("refused", "0", device.BLOCKED)
        assert client.events.count(("accepted", "5")) == 1


async def test_a_detached_device_gets_no_late_response_and_is_logged_in_again(scripted: ScriptedNetwork) -> None:
    scripted.respond = welcome
    async with (await client_of(scripted, ANN, BEN)).running() as client:
        client.send(ANN, BEN, "of ann")
        client.send(BEN, ANN, "of ben")
        of_ann, of_ben = await scripted.until_sent(device.Send, 2)
        scripted.send_frame(device.Closing(device.OVERLOADED, ANN))
        scripted.send_frame(device.Refused(of_ann.n, device.INVALID, "not logged in on this connection"))
        scripted.send_frame(device.Accepted([of_ben.n]))
        await client.until(lambda: client.count("attached") == 3)
        client.send(ANN, BEN, "of ann")
        again = (await scripted.until_sent(device.Send, 3))[-1]
        scripted.send_frame(device.Accepted([again.n]))
        await client.until_event("accepted", "of ann")
    assert ("accepted", "of ben") in client.events
    assert client.count("refused") == 0


async def test_the_refusal_of_an_earlier_login_does_not_affect_a_later_one(scripted: ScriptedNetwork) -> None:
    client = await client_of(scripted, ANN)
    async with client.running(ready=False):
        (first,) = await scripted.until_sent(device.Login, 1)
        client.connection.log_in(ANN, "a newer token")
        _, second = await scripted.until_sent(device.Login, 2)
        scripted.send_frame(device.Failed(first.n, device.UNAUTHORIZED))
        scripted.send_frame(device.Ok(second.n))
        await client.until_event("attached", ANN)
        scripted.respond = welcome
        scripted.connections[-1].close("the connection breaks")
        await client.until(lambda: client.count("attached") == 2)
    assert client.count("detached") == 0


async def test_a_login_refused_as_overloaded_is_retried_on_the_same_connection(scripted: ScriptedNetwork) -> None:
    responses: Iterator[Any] = iter([lambda n: device.Failed(n, device.OVERLOADED), device.Ok])
    scripted.respond = lambda frame: next(responses)(frame.n) if isinstance(frame, device.Login) else None
    async with (await client_of(scripted, ANN)).running() as client:
        await client.until_event("attached", ANN)
    assert len(scripted.connections) == 1


@pytest.mark.parametrize(
    "respond",
    [
        lambda n: device.Failed(n, device.UNAUTHORIZED),
        lambda n: device.Failed(n, device.BUSY),
        lambda n: device.Bundles(n, []),
        lambda n: device.Closing(device.SHUTDOWN),
    ],
)
async def test_a_response_of_the_wrong_kind_counts_as_no_response(scripted: ScriptedNetwork, respond: Any) -> None:
    calls: list[tuple[str, str]] = []
    scripted.respond = lambda frame: respond(frame.n) if isinstance(frame, device.Check) else welcome(frame)
    client = await client_of(scripted, ANN, observe=lambda call, result, seconds: calls.append((call, result)))
    async with client.running():
        with pytest.raises(NetworkUnavailable):
            await client.connection.check(ANN, [BEN])
    assert [call for call, _ in calls[:2]] == ["login", "check"]
    assert calls[0][1] == "ok"


async def test_reconnect_delays_are_random_within_a_growing_bounded_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ranges: list[tuple[float, float]] = []

    def longest(low: float, high: float) -> float:
        ranges.append((low, high))
        return high

    monkeypatch.setattr(random, "uniform", longest)
    loop = asyncio.get_running_loop()
    attempts: list[float] = []
    enough = asyncio.Event()

    async def dial(handler: Handler) -> Any:
        attempts.append(loop.time())
        if len(attempts) == 7:
            enough.set()
        raise ConnectionRefusedError("nobody there")

    client = Recorder(dial, backoff=(0.02, 0.08))
    async with client.running(ready=False):
        await enough.wait()
    waits = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert ranges[:6] == [(0.0, longest) for longest in (0.02, 0.04, 0.08, 0.08, 0.08, 0.08)]
    assert all(wait >= least for wait, (_, least) in zip(waits, ranges, strict=False))
    assert client.events == [("lost", "cannot be reached")]


async def test_fail_ends_the_connection_permanently(scripted: ScriptedNetwork) -> None:
    scripted.respond = welcome
    client = await client_of(scripted, ANN)
    async with client.running():
        client.connection.fail(LookupError("over"))
        assert client.task is not None
        with pytest.raises(LookupError, match="over"):
            await client.task
    assert len(scripted.connections) == 1


async def test_queued_frames_are_written_before_a_stop(scripted: ScriptedNetwork) -> None:
    scripted.respond = welcome
    async with (await client_of(scripted, ANN)).running() as client:
        client.send(ANN, BEN, "last words")
        await scripted.until_sent(device.Login, 1)
    assert [send.id for send in await scripted.until_sent(device.Send, 1)] == ["last words"]
    assert client.events[-1][0] == "lost"


@pytest.mark.parametrize("reason", [device.MAILBOX_FULL, device.RATE_LIMITED])
async def test_sends_refused_as_mailbox_full_are_retried_in_order(
    scripted: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    monkeypatch.setattr(held_back, "LEAST_SECONDS", 0.01)
    taken: list[str] = []
    refused: list[str] = []
    full = True

    def respond(frame: Any) -> Any:
        if not isinstance(frame, device.Send):
            return welcome(frame)
        # Sends behind a refused one are refused too, until that one is sent again.
        behind = refused and refused[-1] not in (frame.id, *taken)
        if frame.to == BEN and (full or behind or (len(taken) % 7 == 6 and frame.id not in refused)):
            if not behind:
                refused.append(frame.id)
            return device.Refused(frame.n, reason)
        taken.append(frame.id)
        return device.Accepted([frame.n])

    scripted.respond = respond
    async with (await client_of(scripted, ANN)).running() as client:
        for n in range(3):
            client.send(ANN, BEN, str(n))
        await client.until_event("held back", "2")
        for n in range(3, 300):
            client.send(ANN, BEN, str(n))
        client.send(ANN, "15550100003", "to another")
        await client.until_event("accepted", "to another")
        assert client.count("accepted") == 1
        assert len(scripted.sent(device.Send)) < 10, "what is behind it is not even sent"
        full = False
        await client.until_event("accepted", "299")
    assert client.count("refused") == 0
    assert len(set(refused)) > 10
    assert [id for id in taken if id != "to another"] == [str(n) for n in range(300)]
    assert scripted.sent(device.Send)[-1].id == "299"


async def test_a_held_back_send_that_an_overloaded_network_refuses_stays_first(
    scripted: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_back, "LEAST_SECONDS", 0.01)
    released = asyncio.Event()
    reasons = [device.MAILBOX_FULL, device.OVERLOADED, device.OVERLOADED]
    taken: list[str] = []

    def respond(frame: Any) -> Any:
        if not isinstance(frame, device.Send):
            return welcome(frame)
        if not released.is_set():
            return device.Refused(frame.n, device.MAILBOX_FULL)
        if frame.id == "0" and reasons:
            return device.Refused(frame.n, reasons.pop(0))
        taken.append(frame.id)
        return device.Accepted([frame.n])

    scripted.respond = respond
    async with (await client_of(scripted, ANN)).running() as client:
        for n in range(5):
            client.send(ANN, BEN, str(n))
        await client.until_event("held back", "4")
        released.set()
        await client.until_event("accepted", "4")
    assert client.count("refused") == 0
    assert taken == [str(n) for n in range(5)]
    assert reasons == []


async def test_held_back_sends_are_dropped_with_their_connection(
    scripted: ScriptedNetwork,
) -> None:
    scripted.respond = lambda f: device.Refused(f.n, device.MAILBOX_FULL) if isinstance(f, device.Send) else welcome(f)
    async with (await client_of(scripted, ANN)).running() as client:
        client.send(ANN, BEN, "1")
        await client.until_event("held back", "1")
        client.send(ANN, BEN, "2")
        scripted.respond = lambda f: device.Accepted([f.n]) if isinstance(f, device.Send) else welcome(f)
        scripted.connections[-1].close("the connection breaks")
        await client.until(lambda: client.count("attached") == 2)
        client.send(ANN, BEN, "1")
        client.send(ANN, BEN, "2")
        await client.until_event("accepted", "2")
    assert [send.id for send in scripted.sent(device.Send)] == ["1", "1", "2"]


async def test_a_login_is_not_repeated_while_it_is_in_flight(scripted: ScriptedNetwork) -> None:
    client = await client_of(scripted, ANN, login_again=0.05)
    async with client.running(ready=False):
        (login,) = await scripted.until_sent(device.Login, 1)
        scripted.send_frame(device.Failed(login.n, device.OVERLOADED))
        await client.until(lambda: client.count("detached") == 1)
        # The connection is opened again before the login is due again, and the network is slow.
        client.connection.drop("lost")
        await scripted.until_sent(device.Login, 2)
        due = asyncio.Event()
        asyncio.get_running_loop().call_later(0.1, due.set)
        await due.wait()
        for sent in scripted.sent(device.Login)[1:]:
            scripted.send_frame(device.Ok(sent.n))
        await client.until(lambda: client.count("attached") == 1)
        assert len(scripted.sent(device.Login)) == 2
