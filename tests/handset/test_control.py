"""The socket by which tests act as the robots: its limits, and calls that cannot be read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from handset.robots.control import RecipientControl
from harness import polling
from tidings.wire import codes, recipients
from tidings.wire.recipients import RecipientCall, RecipientDone, RecipientResponse
from webapp.api.testing.robots_link import RobotsLink
from webapp.http.errors import InvalidRequest, Overloaded


class Robots:
    """Robots that respond to calls once they are released."""

    def __init__(self) -> None:
        self.calls: list[RecipientCall] = []
        self.released = asyncio.Event()
        self.released.set()
        self.response: RecipientResponse = RecipientDone("gBEG")

    async def respond(self, call: RecipientCall) -> RecipientResponse:
        self.calls.append(call)
        await self.released.wait()
        return self.response


@contextlib.asynccontextmanager
async def listening(directory: Path, robots: Robots) -> AsyncIterator[None]:
    """Serve the socket of a directory during the block."""
    stop = asyncio.Event()
    running = asyncio.create_task(RecipientControl(directory, robots.respond).run(stop))
    try:
        await polling.until((directory / "recipients.sock").exists, seconds=30)
        yield
    finally:
        stop.set()
        robots.released.set()
        await running


async def read(directory: Path, line: bytes) -> bytes:
    """Send bytes and return the response; empty when the connection closes without one."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        reader, writer = await asyncio.open_unix_connection(recipients.address_of(directory, descriptor))
    finally:
        os.close(descriptor)
    try:
        writer.write(line)
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("name", ["short", "n" * 120])
async def test_a_call_reaches_the_robots_whatever_the_length_of_the_path(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    robots = Robots()
    async with listening(directory, robots):
        assert stat.S_IMODE((directory / "recipients.sock").stat().st_mode) == 0o600
        call = recipients.SendAsRecipient("15550110000", "15550000000", {"type": "text"}, file=b"\x00\xff")
        assert (await RobotsLink(directory).call(call)).id == "gBEG"
    assert robots.calls == [call]
    assert not (directory / "recipients.sock").exists()


async def test_a_line_that_is_no_call_is_refused_and_one_over_4_mib_closes_the_connection(tmp_path: Path) -> None:
    robots = Robots()
    async with listening(tmp_path, robots):
        for line in (b"{\n", b"{}\n", b'{"t":"nothing"}\n', b'{"t":"send"}\n'):
            assert b'"failed"' in await read(tmp_path, line)
        assert await read(tmp_path, b"x" * (5 * 1024 * 1024)) == b""
        assert (await RobotsLink(tmp_path).call(recipients.DropShown())).id == "gBEG"
    assert robots.calls == [recipients.DropShown()]


async def test_the_33rd_connection_is_closed(tmp_path: Path) -> None:
    robots = Robots()
    robots.released.clear()
    async with listening(tmp_path, robots), asyncio.TaskGroup() as tasks:
        line = recipients.encode(recipients.DropShown()) + b"\n"
        pending = [tasks.create_task(read(tmp_path, line)) for _ in range(32)]
        await polling.until(lambda: len(robots.calls) == 32, seconds=30)
        assert await read(tmp_path, line) == b""
        robots.released.set()
    assert all(b'"done"' in task.result() for task in pending)


@pytest.mark.parametrize(
    ("reason", "code"),
    [(recipients.UNKNOWN, codes.NOT_FOUND), (recipients.OFFLINE, codes.PARAMETER_INVALID), (recipients.REFUSED, 1009)],
)
async def test_a_failed_call_is_an_error_of_the_request(tmp_path: Path, reason: str, code: int) -> None:
    robots = Robots()
    robots.response = recipients.RecipientFailure(reason, "why")
    async with listening(tmp_path, robots):
        with pytest.raises(InvalidRequest, match=f"{code} why"):
            await RobotsLink(tmp_path).call(recipients.DropShown())


async def test_robots_that_do_not_run_or_cannot_work_now_are_an_overload(tmp_path: Path) -> None:
    with pytest.raises(Overloaded, match="do not run"):
        await RobotsLink(tmp_path).call(recipients.DropShown())
    robots = Robots()
    robots.response = recipients.RecipientFailure(recipients.AWAY, "the network is unreachable")
    async with listening(tmp_path, robots):
        with pytest.raises(Overloaded, match="the network is unreachable"):
            await RobotsLink(tmp_path).call(recipients.DropShown())
