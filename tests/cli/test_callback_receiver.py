"""Web server of `tidings listen` and of the demonstration."""

from __future__ import annotations

import argparse
import socket

import httpx
import pytest

from cli.callback_receiver import MAX_BODY, receiving
from cli.commands import listen
from cli.guard import CommandFailure


async def test_bodies_that_are_posted_anywhere_are_shown_and_answered() -> None:
    shown: list[bytes] = []
    async with (
        receiving("127.0.0.1", 0, shown.append) as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client,
    ):
        assert (await client.post("/", content=b'{"statuses":[]}')).status_code == 200
        assert (await client.post("/any/where", content=b"not JSON")).status_code == 200
        assert (await client.get("/")).status_code == 405
    assert shown == [b'{"statuses":[]}', b"not JSON"]


async def test_what_is_too_large_is_refused() -> None:
    shown: list[bytes] = []
    async with (
        receiving("127.0.0.1", 0, shown.append) as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client,
    ):
        assert (await client.post("/", content=bytes(MAX_BODY + 1))).status_code == 413
    assert not shown


async def test_an_address_that_is_taken_is_said_and_one_that_was_left_is_free() -> None:
    async with receiving("127.0.0.1", 0, print) as (host, port):
        with pytest.raises(OSError, match="in use"):
            async with receiving(host, port, print):
                pass
    with socket.create_server((host, port)):
        pass


async def test_a_number_that_is_no_port_is_said() -> None:
    with pytest.raises(OverflowError):
        async with receiving("127.0.0.1", 70_000, print):
            pass


def test_a_busy_port_names_the_option_that_moves_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandFailure, match=f"127.0.0.1:{port} is in use: name another port with --port"):
            listen.run(argparse.Namespace(host="127.0.0.1", port=port, json=False))
