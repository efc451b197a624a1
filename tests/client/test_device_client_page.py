"""docs/device-client.md is correct: the script that it links to runs, and its tables are complete."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.client.conftest import register
from tests.client.support import TIMEOUT, Recorder
from tests.network.support import REGISTRATION_KEY, Network
from tidings import client, e2ee
from tidings.client import connection, reconnecting, sessions
from tidings.client.http import NetworkApi
from tidings.client.listener import DeviceListener
from tidings.client.transports import tcp
from tidings.wire import content

PAGE = Path(__file__).parents[2] / "docs" / "device-client.md"
TEXT = PAGE.read_text(encoding="utf-8")
SCRIPT = PAGE.parent / "examples" / "device" / "echo.py"
ANN, ECHO = "15550100001", "15550100009"


@pytest.fixture
async def echo(network: Network, tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the page's script as a separate program, and wait until it has logged in."""
    assert "[`echo.py`](examples/device/echo.py)" in TEXT
    (tmp_path / "echo.py").write_text(SCRIPT.read_text(encoding="utf-8"))
    host, port = network.addresses.http
    arguments = (str(tmp_path / "echo.py"), f"http://{host}:{port}", ECHO)
    environment = {**os.environ, "TIDINGS_REGISTRATION_KEY": REGISTRATION_KEY, "PYTHONPATH": os.getcwd()}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env=environment
    )
    try:
        assert await line_of(process) == "logged in"
        yield process
    finally:
        process.kill()
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(3 * TIMEOUT):
        return (await process.stdout.readline()).decode().strip()


async def test_the_script_registers_logs_in_and_echoes_texts(
    network: Network, api: NetworkApi, echo: asyncio.subprocess.Process
) -> None:
    ann = await register(api, ANN)
    assert ann.token is not None
    client = Recorder(tcp(*network.addresses.tcp))
    client.connection.log_in(ANN, ann.token)
    async with client.running():
        session = sessions.initiate(ann.identity, 1, (await client.connection.fetch(ANN, [ECHO]))[ECHO])
        assert session.version == e2ee.VERSION_4
        for number, plaintext in enumerate((content.NULL_CONTENT, *map(content.encode_text, ("one", "two", "three")))):
            kind, body = session.encrypt(plaintext)
            client.send(ANN, ECHO, f"m{number}", kind=sessions.KINDS[kind], body=body)
            if plaintext != content.NULL_CONTENT:
                await client.until(lambda count=number: len(client.deliveries) == count)  # type: ignore[misc]
                session, reply = sessions.read(session, client.deliveries[-1].body)
                assert reply == plaintext
        client.send(ANN, ECHO, "garbage", body=b"\x33garbage")
        assert (await line_of(echo)).startswith("unreadable: ")
        kind, body = session.encrypt(content.encode_text("four"))
        client.send(ANN, ECHO, "m4", kind=sessions.KINDS[kind], body=body)
        await client.until(lambda: len(client.deliveries) == 4)


def test_every_module_is_documented() -> None:
    assert client.__file__ is not None
    modules = {path.stem for path in Path(client.__file__).parent.glob("[!_]*.py")}
    assert set(first_words("## What each module is for")) == modules


def test_every_listener_event_is_documented_in_order() -> None:
    events = [name for name, member in vars(DeviceListener).items() if callable(member) and not name.startswith("_")]
    assert first_words("Events of the listener:") == events


def test_documented_figures_match_the_code() -> None:
    for figure in (
        f"{connection.LOGINS_IN_FLIGHT} at a time",
        f"pings every {reconnecting.PING_SECONDS:g} s",
        f"silent for {reconnecting.SILENCE_SECONDS:g} s",
        "from {:g} s to {:g} s".format(*connection.BACKOFF),
        f"At most {connection.SENDS_IN_FLIGHT:,} sends",
        f"wait {connection.RESPONSE_SECONDS:g} s for an answer",
    ):
        assert figure in TEXT.replace("\n", " "), figure


def first_words(heading: str) -> list[str]:
    """Return the code at the start of each item of the first list after this line."""
    found = re.search(rf"^{heading}\n\n((?:(?:- |  ).*\n)*)", TEXT, re.MULTILINE)
    assert found, heading
    return re.findall(r"^- `(\w+)`: ", found[1], re.MULTILINE)
