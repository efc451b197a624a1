"""Costs that clients without a token can cause in a Webapp and on the HTTP side of the network."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from tests.security.attack import Attack
from tests.security.figures import Form
from tests.security.scene import Target

BOTH = pytest.mark.parametrize("place", ["webapp", "network"])
PATHS = {"webapp": b"/v1/health", "network": b"/v1/keys/15550110000"}
OTHERS = {"webapp": ("webapp", "messages"), "network": ("network", "messages")}
LOGIN = b"Basic " + base64.b64encode(b"nobody:wrong")


def request(path: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    lines = (b"%b %b HTTP/1.1" % (method, path), b"Host: x", *headers, b"", b"")
    return b"\r\n".join(lines)


async def write(writer: asyncio.StreamWriter, data: bytes, times: int = 1) -> None:
    """Write the data until a write is blocked for a second or the connection is closed."""
    with contextlib.suppress(OSError, TimeoutError):
        for _ in range(times):
            writer.write(data)
            async with asyncio.timeout(1):
                await writer.drain()


async def go_on(seconds: float, count: int, use: Callable[[], Awaitable[None]]) -> None:
    """Run `count` unauthenticated clients at a time, repeatedly, for `seconds`."""

    async def repeat() -> None:
        while True:
            with contextlib.suppress(OSError, EOFError):
                await use()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(repeat())


async def read_responses(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(10):
        return await reader.readuntil(b"\r\n\r\n")


@BOTH
async def test_requests_behind_an_unread_response_use_few_resources(
    target: Target, attack: Attack, form: Form, place: str
) -> None:
    many = request(PATHS[place]) * 2_000
    async with attack("requests behind unread responses", on=place, others=OTHERS[place]) as strike:
        connections = [await target.dial(place) for _ in range(60)]
        await asyncio.gather(*(write(writer, many, form.count(2, 100)) for _, writer in connections))
        await strike.last(form.pick(0.8, 10))


@BOTH
async def test_bodies_of_unauthenticated_clients_use_few_resources(
    target: Target, attack: Attack, form: Form, place: str
) -> None:
    path, method = (b"/v1/users/login", b"POST") if place == "webapp" else (b"/v1/codes", b"POST")
    head = request(path, b"Authorization: " + LOGIN, b"Content-Length: 1000000", method=method)
    async with attack("bodies of logins", on=place, others=OTHERS[place]) as strike:
        for _ in range(form.count(60, 600) // 20):
            writers = [(await target.dial(place))[1] for _ in range(20)]
            await asyncio.gather(*(write(writer, head + b" " * 999_999) for writer in writers))
        await strike.last(form.pick(0.8, 15))


@BOTH
async def test_endless_bodies_use_few_resources(target: Target, attack: Attack, form: Form, place: str) -> None:
    head = request(PATHS[place], b"Transfer-Encoding: chunked", method=b"POST")
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    async with attack("bodies that nobody asked for", on=place, others=OTHERS[place]):
        writers = [(await target.dial(place))[1] for _ in range(form.count(8, 40))]
        seconds = form.pick(0.8, 15)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as group:
                for writer in writers:
                    group.create_task(write(writer, head + chunk * 4))
                    group.create_task(write(writer, chunk * 4, 10_000))
                await asyncio.sleep(seconds)


@BOTH
async def test_a_flood_of_requests_uses_few_resources(target: Target, attack: Attack, form: Form, place: str) -> None:
    hosts = [target.unknown_address() for _ in range(20)]
    connections = asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
    sent = request(PATHS[place], b"Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30.x")

    async def use() -> None:
        reader, writer = await connections.get()
        writer.write(sent)
        await read_responses(reader)
        connections.put_nowait((reader, writer))

    async with attack("requests from 20 addresses", on=place, others=OTHERS[place]):
        for index in range(40):
            connections.put_nowait(await target.dial(place, hosts[index % 20]))
        await go_on(form.pick(1, 20), 40, use)


@BOTH
async def test_a_flood_of_connections_uses_few_resources(
    target: Target, attack: Attack, form: Form, place: str
) -> None:
    host = target.unknown_address()

    async def use() -> None:
        _, writer = await asyncio.open_connection(*target.places[place], local_addr=(host, 0))
        writer.write(b"G")
        writer.transport.abort()

    async with attack("connections from one address", on=place, others=OTHERS[place]):
        await go_on(form.pick(1, 20), 20, use)


@BOTH
async def test_idle_connections_use_few_resources(target: Target, attack: Attack, form: Form, place: str) -> None:
    heads = request(PATHS[place], *(b"X-%d: y" % number for number in range(60)))[:-2]
    async with attack("connections that stay", on=place, others=OTHERS[place]) as strike:
        for _ in range(form.count(15, 60)):
            host = target.unknown_address()
            with contextlib.suppress(OSError):
                for _ in range(20):
                    _, writer = await target.dial(place, host)
                    writer.write(heads)
        await strike.last(form.pick(0.8, 15))


async def test_a_flood_from_the_address_of_authenticated_clients_uses_few_resources(
    target: Target, attack: Attack, form: Form
) -> None:
    sent = request(b"/v1/contacts")

    async def use() -> None:
        reader, writer = await asyncio.open_connection(*target.places["webapp"])
        writer.write(sent)
        try:
            await read_responses(reader)
        finally:
            writer.transport.abort()

    async with attack("requests from a known address", on="webapp", others=("webapp", "messages")):
        await go_on(form.pick(1, 20), 40, use)
