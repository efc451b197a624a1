"""Web server of `tidings listen` and of the demonstration."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import threading

import httpx
import pytest

from cli.callback_receiver import MAX_BODY, receiving
from cli.commands import listen
from cli.guard import CommandFailure


async def test_posted_bodies_are_shown_and_acknowledged_on_any_path() -> None:
    shown: list[bytes] = []
    async with (
        receiving("127.0.0.1", 0, shown.append) as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client,
    ):
        assert (await client.post("/", content=b'{"statuses":[]}')).status_code == 200
        assert (await client.post("/any/where", content=b"not JSON")).status_code == 200
        assert (await client.get("/")).status_code == 405
    assert shown == [b'{"statuses":[]}', b"not JSON"]


async def test_a_body_that_is_too_large_is_refused() -> None:
    shown: list[bytes] = []
    async with (
        receiving("127.0.0.1", 0, shown.append) as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as client,
    ):
        assert (await client.post("/", content=bytes(MAX_BODY + 1))).status_code == 413
    assert not shown


async def test_an_address_in_use_raises_oserror_and_a_closed_one_is_free() -> None:
    async with receiving("127.0.0.1", 0, print) as (host, port):
        with pytest.raises(OSError, match="in use"):
            async with receiving(host, port, print):
                pass
    with socket.create_server((host, port)):
        pass


async def test_an_invalid_port_raises_overflowerror() -> None:
    with pytest.raises(OverflowError):
        async with receiving("127.0.0.1", 70_000, print):
            pass


def test_the_error_for_a_port_in_use_names_the_port_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandFailure, match=f"127.0.0.1:{port} is in use: name another port with --port"):
            listen.run(argparse.Namespace(host="127.0.0.1", port=port, json=False))


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", r"127\.0\.0\.1"), ("::1", r"\[::1\]")])
def test_the_printed_url_is_the_one_to_post_to(host: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
    listen.run(argparse.Namespace(host=host, port=0, json=False))
    assert re.search(rf" at http://{shown}:[1-9][0-9]*/ ", capsys.readouterr().out)


def test_listening_ends_when_nobody_reads_its_output() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "import sys, cli.start; sys.exit(cli.start.run())", "listen", f"--port={port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert httpx.post(f"http://127.0.0.1:{port}/", content=b"{}", trust_env=False).status_code == 503
        assert (process.wait(10), process.stderr.read()) == (141, b"")
