"""Each request gets its response, a time-out, or an error that the connection is closed. None waits forever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidings.wire import connection as wire
from tidings.wire import core
from tidings.wire.requests import Requests


class Client:
    def __init__(self, requests: Requests[core.Response]) -> None:
        self.requests = requests

    def opened(self, connection: wire.Connection) -> None:
        pass

    def received(self, connection: wire.Connection, frame: core.Response) -> None:
        self.requests.resolve(frame.n, frame)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        self.requests.lost(reason)


class Server:
    """Server that sends responses only when the test makes it."""

    def __init__(self) -> None:
        self.requests: asyncio.Queue[core.Request] = asyncio.Queue()
        self.connection: wire.Connection | None = None

    def opened(self, connection: wire.Connection) -> None:
        self.connection = connection

    def received(self, connection: wire.Connection, frame: core.Request) -> None:
        self.requests.put_nowait(frame)

    def closed(self, connection: wire.Connection, reason: str) -> None:
        pass


@pytest.fixture
async def server() -> Server:
    return Server()


@pytest.fixture
def requests() -> Requests[core.Response]:
    return Requests(max_in_flight=3)


@pytest.fixture
async def connection(server: Server, requests: Requests[core.Response]) -> AsyncIterator[wire.Connection]:
    listener = await wire.listen("127.0.0.1", 0, core.Request, lambda: server)
    port = listener.sockets[0].getsockname()[1]
    opened = await wire.connect("127.0.0.1", port, core.Response, Client(requests))
    yield opened
    opened.abort("end of the test")
    if server.connection is not None:
        server.connection.abort("end of the test")
    listener.close()
    await listener.wait_closed()


async def test_responses_in_any_order_reach_their_requests(
    server: Server, requests: Requests[core.Response], connection: wire.Connection
) -> None:
    pending = [asyncio.create_task(requests.call(connection, core.GetHealth, timeout=60)) for _ in range(3)]
    numbers = [(await server.requests.get()).n for _ in pending]
    assert numbers == [1, 2, 3]
    assert server.connection is not None
    for number in reversed(numbers):
        server.connection.send(core.Health(n=number, gateway_status=str(number)))
    responses = await asyncio.gather(*pending)
    assert [response.n for response in responses] == numbers
    assert requests.in_flight == 0


async def test_requests_in_flight_fail_when_the_connection_is_lost(
    server: Server, requests: Requests[core.Response], connection: wire.Connection
) -> None:
    pending = asyncio.create_task(requests.call(connection, core.GetHealth, timeout=60))
    await server.requests.get()
    assert server.connection is not None
    server.connection.abort("crash")
    with pytest.raises(wire.Disconnected):
        await pending
    assert requests.in_flight == 0
    with pytest.raises(wire.Disconnected, match="not connected"):
        await requests.call(connection, core.GetHealth, timeout=60)


async def test_an_unanswered_request_times_out_and_a_late_response_is_dropped(
    server: Server, requests: Requests[core.Response], connection: wire.Connection
) -> None:
    with pytest.raises(TimeoutError, match=r"no response within 0\.01 s"):
        await requests.call(connection, core.GetHealth, timeout=0.01)
    assert not requests.resolve(1, core.Done(n=1))
    assert requests.in_flight == 0


async def test_each_call_has_its_own_time_and_may_wait_longer(
    server: Server, requests: Requests[core.Response], connection: wire.Connection
) -> None:
    patient = asyncio.create_task(requests.call(connection, core.GetHealth, timeout=60))
    first = await server.requests.get()
    more = [0.01, 0.02, 0.0]
    extended = asyncio.create_task(requests.call(connection, core.GetHealth, timeout=0.01, longer=lambda: more.pop(0)))
    with pytest.raises(TimeoutError, match=r"no response within 0\.02 s"):
        await requests.call(connection, core.GetHealth, timeout=0.02)
    with pytest.raises(TimeoutError, match=r"no response within 0\.04 s"):
        await extended
    assert (more, requests.in_flight) == ([], 1)
    assert server.connection is not None
    server.connection.send(core.Health(n=first.n, gateway_status="late, but in time"))
    assert (await patient).n == first.n


async def test_requests_over_the_limit_are_refused_at_once(
    requests: Requests[core.Response], connection: wire.Connection
) -> None:
    pending = [asyncio.ensure_future(requests.call(connection, core.GetHealth, timeout=60)) for _ in range(3)]
    await asyncio.wait(pending, timeout=0.001)
    with pytest.raises(wire.Disconnected, match="already in flight"):
        await requests.call(connection, core.GetHealth, timeout=60)
    connection.abort("enough")
    results = await asyncio.gather(*pending, return_exceptions=True)
    assert all(isinstance(result, wire.Disconnected) for result in results)


async def test_a_cancelled_call_leaves_nothing_behind(
    server: Server, requests: Requests[core.Response], connection: wire.Connection
) -> None:
    pending = asyncio.create_task(requests.call(connection, core.GetHealth, timeout=60))
    await server.requests.get()
    pending.cancel()
    await asyncio.wait([pending])
    assert requests.in_flight == 0
    assert not requests.resolve(1, core.Done(n=1))


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)))
def test_in_any_order_each_call_gets_its_response_or_a_connection_error(
    order: list[int], with_response: set[int]
) -> None:
    class Line:
        """Open connection that carries nothing."""

        is_open = True
        writes = 0

        def send(self, frame: object) -> None:
            pass

    async def scenario() -> None:
        requests: Requests[core.Response] = Requests()
        pending = [
            asyncio.ensure_future(requests.call(Line(), core.GetHealth, timeout=60))  # type: ignore[arg-type]
            for _ in range(8)
        ]
        await asyncio.wait(pending, timeout=0)
        for number in order:
            if number in with_response:
                assert requests.resolve(number, core.Done(n=number))
        requests.lost("gone")
        results = await asyncio.gather(*pending, return_exceptions=True)
        for number, result in enumerate(results, 1):
            if number in with_response:
                assert result == core.Done(n=number)
            else:
                assert isinstance(result, wire.NotSent)

    asyncio.run(scenario())
