"""Input that is hardly HTTP, and start and stop of a Webapp."""

from __future__ import annotations

import asyncio
import json
import re
import socket

import httpx
import pytest

from tests.webapp import raw
from tests.webapp.conftest import Served, basic, body, make_settings
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.config.env import SettingsError
from tidings.installation.settings import DatabaseSettings
from tidings.storage import revisions
from tidings.storage.database import Database
from tidings.wire import core
from webapp import services


@pytest.fixture
def api(served_api: Served) -> Served:
    """Webapp over a real socket, for all tests of this module."""
    return served_api


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/messages HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: gzip\r\n\r\nxyz",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
    ],
)
async def test_invalid_http_gets_400_in_the_apis_format(api: Served, sent: bytes) -> None:
    status, headers, payload = await raw.exchange(api.port, sent)
    assert status == 400
    assert payload["errors"][0]["code"] == 1025
    assert payload["meta"]["version"] == "2.57.2"
    assert headers["content-type"] == "application/json"
    assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])


async def test_an_endless_head_is_refused(api: Served) -> None:
    endless = (b"X: " + b"x" * 16_000 + b"\r\n" for _ in range(40))

    async def lines() -> object:
        for line in endless:
            yield line

    status, headers, payload = await raw.stream(api.port, b"GET / HTTP/1.1\r\nHost: x\r\n", lines())  # type: ignore[arg-type]
    assert status == 400
    assert "head" in payload["errors"][0]["details"]
    assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])


async def test_endless_trailers_after_a_response_close_the_connection(api: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    async with asyncio.timeout(20):
        writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert (await raw.read_response(reader))[0] == 401
        with pytest.raises(ConnectionError):
            writer.write(b"0\r\nA: ")
            for _ in range(1_000):
                writer.write(b"a" * 16_000)
                await writer.drain()
    writer.transport.abort()


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


def http_2_upgrade_request(api: Served, framing: bytes, request: bytes = b"POST /v1/messages") -> bytes:
    authorization = api.http.headers["Authorization"].encode()
    return request + b" HTTP/1.1\r\nHost: x\r\n" + UPGRADE + framing + b"Authorization: " + authorization + b"\r\n\r\n"


@pytest.mark.parametrize("pieces", [1, 2, 7])
@pytest.mark.parametrize("chunked", [False, True])
async def test_an_http_2_upgrade_request_is_served_over_http_1(
    api: Served, coreapp: FakeCoreapp, pieces: int, chunked: bool
) -> None:
    content = json.dumps(body("message_text")).encode()
    framing = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: %d\r\n" % len(content)
    sent = http_2_upgrade_request(api, framing) + (
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content) if chunked else content
    )
    size = -(-len(sent) // pieces)
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    async with asyncio.timeout(20):
        # Repeated on one connection, with the body right after its head and far behind it.
        for _ in range(3):
            for start in range(0, len(sent), size):
                writer.write(sent[start : start + size])
                await writer.drain()
                await asyncio.sleep(0)
            status, _, payload = await raw.read_response(reader)
            assert status == 201, payload
        writer.write(http_2_upgrade_request(api, b"", b"GET /v1/health") * 2)
        for _ in range(2):
            assert (await raw.read_response(reader))[0] == 200
    writer.close()
    assert len(coreapp.requested(core.AcceptMessage)) == 3


async def test_the_body_of_an_http_2_upgrade_request_is_not_parsed_as_a_request(
    api: Served, coreapp: FakeCoreapp
) -> None:
    content = json.dumps(body("message_text")).encode()
    inner = b"POST /v1/messages HTTP/1.1\r\nContent-Length: %d\r\nAuthorization: " % len(content)
    inner += api.http.headers["Authorization"].encode() + b"\r\n\r\n" + content
    outer = http_2_upgrade_request(api, b"Content-Length: %d\r\n" % len(inner))
    assert (await raw.exchange(api.port, outer + inner))[0] == 400
    assert not coreapp.requested(core.AcceptMessage)


async def test_a_large_body_does_not_count_as_head_of_the_next_request(api: Served) -> None:
    content = b" " * 500_000 + b"{}"
    head = (
        f"POST /v1/messages HTTP/1.1\r\nHost: x\r\nAuthorization: {api.http.headers['Authorization']}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    ).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    for _ in range(3):
        writer.write(head + content)
    for _ in range(3):
        assert (await raw.read_response(reader))[0] == 400
    writer.close()


async def test_requests_in_progress_finish_at_shutdown(database: Database, coreapp: FakeCoreapp) -> None:
    settings = make_settings(database, coreapp=("127.0.0.1", coreapp.port))
    stop, ready = asyncio.Event(), asyncio.Queue[services.ServingAddress]()
    running = asyncio.create_task(services.run(settings, stop, ready.put_nowait))
    offered = await ready.get()
    assert offered.url == f"http://127.0.0.1:{offered.port}"
    async with httpx.AsyncClient(base_url=offered.url, trust_env=False) as http:
        response = await http.post(
            "/v1/users/login", headers=basic("admin", "secret"), json={"new_password": "Tidings-2026!"}
        )
        http.headers["Authorization"] = "Bearer " + response.json()["users"][0]["token"]
        held: list[core.AcceptMessage] = []
        coreapp.respond(core.AcceptMessage, lambda q: held.append(q))
        sending = asyncio.create_task(http.post("/v1/messages", json={"to": "15550110001", "text": {"body": "x"}}))
        await coreapp.until(lambda: bool(held))
        stop.set()
        await asyncio.sleep(0)
        for connection in coreapp.connections:
            connection.send(core.Accepted(n=held[0].n, id="gBEG", wa_id="15550110001"))
        assert (await sending).status_code == 201
    await running
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", offered.port))


async def test_an_unconfigured_host_is_refused_in_the_apis_format(database: Database, coreapp: FakeCoreapp) -> None:
    settings = make_settings(database, coreapp=("127.0.0.1", coreapp.port), http_hosts=frozenset({"api.example.com"}))
    stop, ready = asyncio.Event(), asyncio.Queue[services.ServingAddress]()
    running = asyncio.create_task(services.run(settings, stop, ready.put_nowait))
    port = (await ready.get()).port
    login = b"POST /v1/users/login HTTP/1.1\r\nHost: %b\r\nContent-Length: 0\r\n\r\n"
    status, headers, payload = await raw.exchange(port, login % b"rebound.example")
    assert (status, payload["errors"][0]["code"]) == (421, 1025)
    assert "TIDINGS_HTTP_HOSTS" in payload["errors"][0]["details"]
    assert re.fullmatch("[0-9a-f]{32}", headers["x-request-id"])
    for host in (b"api.example.com:443", b"127.0.0.1:%d" % port):
        assert (await raw.exchange(port, login % host))[0] == 401
    for path in (b"/", b"/health/live", b"/metrics"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET %b HTTP/1.1\r\nHost: 10.0.0.7\r\n\r\n" % path)
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.transport.abort()
    stop.set()
    await running


async def test_a_port_in_use_raises_settingserror(api: Served, database: Database) -> None:
    settings = make_settings(database, address=("127.0.0.1", api.port))
    with pytest.raises(SettingsError, match=f"TIDINGS_API_ADDRESS 127.0.0.1:{api.port}: Address already in use"):
        await services.run(settings, asyncio.Event())


async def test_the_database_of_another_number_raises_settingserror(api: Served, database: Database) -> None:
    settings = make_settings(database, account="15559999999")
    with pytest.raises(SettingsError, match="15559999999, but this database is that of 15550000000"):
        await services.run(settings, asyncio.Event())


async def test_pending_migrations_are_refused_unless_embedded(tmp_path: object, coreapp: FakeCoreapp) -> None:
    empty = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/new.db"), "business")
    settings = make_settings(empty, coreapp=("127.0.0.1", coreapp.port))
    await empty.close()
    with pytest.raises(revisions.PendingMigrations):
        await services.run(settings, asyncio.Event())
    settings = settings.model_copy(update={"embedded": True})
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.create_task(services.run(settings, stop, lambda offered: ready.set()))
    await asyncio.wait_for(ready.wait(), 10)
    stop.set()
    await running
