"""Media by link: fetched once through the guard, with a provider's credentials, checked, and failed with a
reason."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from coreapp.media import links
from tests.authority import Authority
from tests.coreapp import media_scene as scene
from tests.coreapp.conftest import BUSINESS, Running, World
from tests.coreapp.signals import Signals, soon
from tests.live_objects import live_objects
from tests.manual_clock import ManualClock
from tests.web_server import serving
from tidings.aio.clock import SystemClock
from tidings.client import attachments
from tidings.client.errors import NetworkUnreached
from tidings.e2ee.installation_secrets import SecretSealer, provider_label
from tidings.egress.responses import ContentParser
from tidings.storage.business import media_providers
from tidings.storage.business.media_providers import MediaProviderRow

NUMBER = "15550110001"
OTHER = "15550110002"


class Server:
    """External web server."""

    def __init__(self) -> None:
        self.signals = Signals()
        self.requests: list[web.Request] = []
        self.respond: Callable[[], web.StreamResponse] = lambda: web.Response(body=scene.PNG, content_type="image/png")
        self.gate: asyncio.Event | None = None
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.signals.changed()
        if self.gate is not None:
            await self.gate.wait()
        return self.respond()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server()
    app = web.Application()
    app.router.add_get("/{path:.*}", server.handle)
    async with serving(app) as server.url:
        yield server


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "RETRY_SECONDS", 0.01)


async def begin(world: World, **more: Any) -> tuple[Running, scene.Inbox]:
    phones = world.add_phones(NUMBER, OTHER)
    inbox = scene.Inbox(world, *phones)
    running = await world.start(**more)
    await world.connected(running)
    await running.client.check(NUMBER, OTHER)
    return running, inbox


async def send_link(running: Running, link: str, kind: str = "image", to: str = NUMBER, **more: Any) -> str:
    response = await scene.send(running, to, {"type": kind, kind: {"link": link, **more}})
    return response.id


def kept_files(world: World) -> list[str]:
    return [path.name for path in world.settings.media_dir.iterdir()]


async def test_a_link_reaches_the_recipient_as_a_pointer_and_leaves_no_local_file(world: World, server: Server) -> None:
    running, inbox = await begin(world)
    await send_link(running, f"{server.url}/a.png?size=1", caption="A cat")
    await inbox.until(1)
    pointer = inbox.contents[NUMBER][0]["image"]
    assert set(pointer) == {"blob", "key", "digest", "size", "mime_type", "sha256", "caption"}
    assert world.network.blobs.read(pointer) == scene.PNG
    (request,) = server.requests
    assert request.path_qs == "/a.png?size=1"
    assert "Authorization" not in request.headers
    await running.stopped()
    assert kept_files(world) == []


async def test_one_fetch_of_a_link_serves_all_messages_within_10_minutes(world: World, server: Server) -> None:
    clock = ManualClock(SystemClock().now())
    running, inbox = await begin(world, clock=clock)
    server.gate = asyncio.Event()
    await asyncio.gather(*(send_link(running, server.url, to=to) for to in (NUMBER, OTHER) * 5))
    await server.signals.until(lambda: bool(server.requests))
    server.gate.set()
    await inbox.until(10)
    clock.advance(599)
    await send_link(running, server.url)
    await inbox.until(11)
    assert len(server.requests) == 1
    clock.advance(2)
    await send_link(running, server.url)
    await inbox.until(12)
    assert len(server.requests) == 2


async def keep_provider(world: World, config: dict[str, Any]) -> None:
    safe = SecretSealer(world.settings.secrets.settings_key.keys[0])
    sealed = safe.seal(BUSINESS, provider_label("files"), json.dumps(config).encode())
    async with world.database.transaction() as connection:
        await media_providers.save_providers(connection, [MediaProviderRow(BUSINESS, "files", "www", sealed)])


@pytest.mark.parametrize(
    ("config", "header"),
    [
        ({"bearer": "a token"}, "Bearer a token"),
        ({"basic": {"username": "ada", "password": "l:ve"}}, "Basic YWRhOmw6dmU="),
    ],
)
async def test_a_link_with_a_provider_uses_its_credentials(
    world: World, server: Server, config: dict[str, Any], header: str
) -> None:
    await keep_provider(world, config)
    running, inbox = await begin(world)
    await send_link(running, server.url, provider={"name": "files"})
    await inbox.until(1)
    assert server.requests[0].headers["Authorization"] == header
    # Credentials are part of the key under which a fetched link is cached.
    await send_link(running, server.url)
    await inbox.until(2)
    assert "Authorization" not in server.requests[1].headers


@pytest.mark.parametrize("host", ["files.example.com", "127.0.0.1", "127.0.0.1:1"])
async def test_credentials_are_not_sent_to_hosts_outside_the_provider_s_list(
    world: World, server: Server, host: str
) -> None:
    await keep_provider(world, {"bearer": "a token", "hosts": [host]})
    running, _ = await begin(world)
    message = await send_link(running, server.url, provider={"name": "files"})
    error = await scene.failure(world, message)
    assert (error["code"], error["details"]) == (1009, "image.link: its host is not one of the provider's hosts")
    assert not server.requests


async def test_credentials_are_sent_to_hosts_in_the_provider_s_list(world: World, server: Server) -> None:
    host = server.url.split("/")[2]
    await keep_provider(world, {"bearer": "a token", "hosts": ["files.example.com", host]})
    running, inbox = await begin(world)
    await send_link(running, server.url, provider={"name": "files"})
    await inbox.until(1)
    assert server.requests[0].headers["Authorization"] == "Bearer a token"


async def test_an_unknown_provider_fails_the_message(world: World, server: Server) -> None:
    running, _ = await begin(world)
    message = await send_link(running, server.url, provider={"name": "nobody"})
    error = await scene.failure(world, message)
    assert (error["code"], error["details"]) == (
        1006,
        "image.provider.name: there is no media provider with this name",
    )
    assert not server.requests


FAILURES: list[tuple[Callable[[], web.StreamResponse], str, int, str]] = [
    (lambda: web.Response(status=404), "image", 1006, "the server responded with HTTP 404"),
    (lambda: web.Response(status=401), "image", 400, "the server responded with HTTP 401"),
    (lambda: web.Response(status=101), "image", 400, "the server responded with HTTP 101"),
    (lambda: web.Response(status=502), "image", 400, "the server responded with HTTP 502"),
    (
        lambda: web.Response(status=302, headers={"Location": "/b.png"}),
        "image",
        400,
        "the server responded with HTTP 302; redirects are not followed",
    ),
    (
        lambda: web.Response(text="<html>", content_type="text/html"),
        "image",
        1009,
        "the file is of none of the types of image: image/jpeg, image/png",
    ),
    (
        lambda: web.Response(body=b"<html>", content_type="image/png"),
        "image",
        1009,
        "the file is of none of the types of image: image/jpeg, image/png",
    ),
    (
        lambda: web.Response(body=b"no pdf", content_type="application/pdf"),
        "document",
        1009,
        "the file is not of the type application/pdf",
    ),
    (lambda: web.Response(body=b"", content_type="image/png"), "image", 1009, "the file is empty"),
    (
        lambda: web.Response(body=scene.PNG + bytes(5 * 1024 * 1024), content_type="image/png"),
        "image",
        1009,
        "the file is over the limit of 5242880 bytes for image",
    ),
    (
        lambda: web.Response(body=b"RIFF\0\0\0\0WEBPVP8 " + bytes(30), content_type="image/webp"),
        "sticker",
        1009,
        "the sticker has no readable picture",
    ),
]


async def test_an_unusable_link_fails_with_code_field_and_reason(world: World, server: Server) -> None:
    running, _ = await begin(world)
    for number, (response, kind, code, why) in enumerate(FAILURES):
        server.respond = response
        message = await send_link(running, f"{server.url}/{number}", kind)
        error = await scene.failure(world, message)
        assert (error["code"], error["details"]) == (code, f"{kind}.link: {why}")
    await running.stopped()
    assert kept_files(world) == []
    assert not world.network.blobs.stored


def in_template(kind: str, link: str) -> dict[str, Any]:
    header = {"type": "header", "parameters": [{"type": kind, kind: {"link": link}}]}
    template = {"name": "bill", "language": {"code": "en"}, "components": [header], "filled": {"body": "Yours"}}
    return {"type": "template", "template": template}


async def test_an_unsuitable_file_for_a_template_header_fails_the_message(world: World, server: Server) -> None:
    server.respond = lambda: web.Response(text="a text", content_type="text/plain")
    running, inbox = await begin(world)
    path = "template.components[0].parameters[0]"
    for kind, why in [
        ("document", "the file is not of the type application/pdf"),
        ("image", "the file is of none of the types of image: image/jpeg, image/png"),
    ]:
        message = await scene.send(running, NUMBER, in_template(kind, server.url))
        error = await scene.failure(world, message.id)
        assert error["code"] == 2008
        assert error["title"] == "Media format unsupported"
        assert error["details"] == f"{path}.{kind}.link: {why}"
    # In other places a document may be of any type.
    await send_link(running, server.url, "document")
    await inbox.until(1)
    assert inbox.contents[NUMBER][0]["document"]["mime_type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("content_type", ["application/octet-stream", "application/pdf", "text/html"])
async def test_a_pdf_in_a_template_header_is_recognised_despite_its_content_type(
    world: World, server: Server, content_type: str
) -> None:
    server.respond = lambda: web.Response(body=b"%PDF-1.7 bill", content_type=content_type)
    running, inbox = await begin(world)
    await scene.send(running, NUMBER, in_template("document", server.url))
    await inbox.until(1)
    (parameter,) = inbox.contents[NUMBER][0]["template"]["components"][0]["parameters"]
    assert parameter["document"]["mime_type"] == "application/pdf"


async def test_a_link_is_fetched_again_after_a_server_error(world: World, server: Server) -> None:
    good = server.respond

    def stumble() -> web.StreamResponse:
        server.respond = good
        return web.Response(status=503)

    server.respond = stumble
    running, inbox = await begin(world)
    await send_link(running, server.url)
    await inbox.until(1)
    assert len(server.requests) == 2


async def test_the_media_type_is_detected_from_the_content(world: World, server: Server) -> None:
    server.respond = lambda: web.Response(body=b"\xff\xd8\xff\xe0 jpeg", content_type="application/octet-stream")
    running, inbox = await begin(world)
    await send_link(running, server.url)
    await inbox.until(1)
    assert inbox.contents[NUMBER][0]["image"]["mime_type"] == "image/jpeg"


async def test_a_link_timeout_fails_the_message_and_later_ones_are_sent(world: World, server: Server) -> None:
    server.gate = asyncio.Event()
    running, inbox = await begin(world, media_link_timeout=0.2)
    message = await send_link(running, server.url)
    await running.client.send(NUMBER, "after")
    error = await scene.failure(world, message)
    assert (error["code"], error["details"]) == (400, "image.link: could not be fetched within 0.2 seconds")
    assert error["title"] == "Media download error"
    await inbox.until(1)
    server.gate.set()


async def test_an_unresponsive_host_does_not_delay_links_of_other_hosts(world: World, server: Server) -> None:
    silent = [f"1555011{number:04}" for number in range(100, 100 + links.AT_ONCE + 4)]
    world.add_phones(*silent)
    running, inbox = await begin(world)
    await running.client.check(*silent)
    connections: list[asyncio.StreamWriter] = []
    signals = Signals()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        signals.changed()
        await reader.read()
        writer.close()

    dead = await asyncio.start_server(say_nothing, "127.0.0.2", 0)
    where = f"http://127.0.0.2:{dead.sockets[0].getsockname()[1]}"
    for to in silent:
        await send_link(running, f"{where}/{to}.png", to=to)
    await signals.until(lambda: len(connections) == links.AT_ONCE_FROM_HOST)
    await send_link(running, server.url)
    await inbox.until(1)
    assert len(connections) == links.AT_ONCE_FROM_HOST
    # The next request to the busy host starts when another request to that host has ended.
    connections[0].write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    await signals.until(lambda: len(connections) == links.AT_ONCE_FROM_HOST + 1)
    dead.close()


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ("http://10.0.0.1/a.png", "a private address"),
        ("http://169.254.169.254/latest/meta-data", "a metadata address"),
        ("http://[::ffff:192.168.0.1]/a.png", "a private address"),
    ],
)
async def test_a_link_to_a_forbidden_address_is_refused(world: World, link: str, what: str) -> None:
    running, _ = await begin(world)
    message = await send_link(running, link)
    error = await scene.failure(world, message)
    assert (error["code"], error["details"]) == (1009, f"image.link: leads to {what}, which is not allowed")


async def test_a_server_without_a_trusted_certificate_fails_the_message(world: World, tmp_path: Path) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    tls = Authority().server_context(tmp_path, "127.0.0.1")
    listening = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=tls)
    running, _ = await begin(world)
    message = await send_link(running, f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}/a.png")
    error = await scene.failure(world, message)
    assert (error["code"], error["details"]) == (400, "image.link: could not be fetched: the certificate is not good")
    listening.close()


async def test_after_a_kill_the_link_is_fetched_again(world: World, server: Server) -> None:
    running, inbox = await begin(world)
    server.gate = asyncio.Event()
    message = await send_link(running, server.url)
    await server.signals.until(lambda: bool(server.requests))
    await running.killed()
    server.gate.set()
    again = await world.start(node="second")
    await world.connected(again)
    await inbox.until(1)
    await world.sink.signals.until(lambda: world.sink.statuses_of(message) == ["sent"])
    assert world.network.blobs.read(inbox.contents[NUMBER][0]["image"]) == scene.PNG


async def test_a_file_of_another_type_is_freed_without_interpreter_gc(
    world: World, server: Server, no_collector: None
) -> None:
    running, _ = await begin(world)
    server.respond = lambda: web.Response(body=b"not a picture" * 100_000)
    for number in range(3):
        error = await scene.failure(world, await send_link(running, f"{server.url}/{number}"))
        assert "none of the types" in error["details"]
    # Each kept about 800 KB: a Coreapp grew by 115 MiB between two collections.
    await soon(lambda: not live_objects(ContentParser), 10)


async def test_a_file_that_waited_so_long_that_it_was_deleted_is_fetched_again(
    world: World, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, inbox = await begin(world)
    upload, is_away = attachments.upload, True

    async def away(*given: Any, **more: Any) -> Any:
        if is_away:
            raise NetworkUnreached("the network is unreachable")
        return await upload(*given, **more)

    monkeypatch.setattr(attachments, "upload", away)
    await send_link(running, server.url)
    folder = scene.directory(world).directory
    await soon(lambda: any(path.is_file() and path.name.isalnum() for path in folder.iterdir()))
    for path in folder.iterdir():
        a_day_ago = SystemClock().now() - 25 * 3600
        os.utime(path, (a_day_ago, a_day_ago))
    await running.shard.media.collector()
    is_away = False
    await inbox.until(1)
    assert world.network.blobs.read(inbox.contents[NUMBER][0]["image"]) == scene.PNG
