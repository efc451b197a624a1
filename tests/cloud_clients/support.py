"""Runs of a client program on a real installation: it sends, and its library receives and verifies webhooks.

A program is a child process that prints one line per event:

    ready                        its library listens for webhooks; it goes on when its standard input has a line
    sent KIND ID                 a message was accepted
    done WHAT                    another call succeeded
    status STATUS ID             the library accepted a webhook with a status
    message TYPE FROM            the library accepted a webhook with a message

It runs until it is killed.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import functools
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

import httpx
from aiohttp import web

from harness import cloud_client
from harness.client import Business
from harness.installation import Installation
from tests import web_server
from tests.authority import Authority
from tests.media_samples import PNG
from tidings.wire.cloud import identity

READER, ECHO = "15550110001", "15550140001"
IDS = identity.derive(cloud_client.ACCOUNT)
VERIFY_TOKEN = "open-sesame"
STATUSES = ("sent", "delivered", "read")
SECONDS = 90.0
FORGED = b'{"object":"whatsapp_business_account","entry":[]}'


@dataclasses.dataclass(frozen=True, slots=True)
class Server:
    """Running installation that serves the Cloud API."""

    installation: Installation
    business: Business  # logged in
    secret: str  # app secret

    @property
    def url(self) -> str:
        """URL of the API, without a version."""
        return f"http://127.0.0.1:{self.installation.api_port}"

    def variables(self, port: int) -> dict[str, str]:
        """Return what a program has to know. port: on which it listens for webhooks"""
        return {
            "API_URL": self.url,
            "TOKEN": self.business.token,
            "PHONE_NUMBER_ID": IDS.phone_number_id,
            "WABA_ID": IDS.waba_id,
            "APP_ID": IDS.app_id,
            "APP_SECRET": self.secret,
            "VERIFY_TOKEN": VERIFY_TOKEN,
            "PORT": str(port),
            "READER": READER,
            "ECHO": ECHO,
        }


@contextlib.asynccontextmanager
async def serving(directory: Path) -> AsyncIterator[Server]:
    """Start an installation on SQLite with robots."""
    variables = {"TIDINGS_CLOUD_API": "1", "TIDINGS_ROBOTS_PER_KIND": "2", "TIDINGS_MESSAGES_RATE": "0"}
    async with Installation(directory, None, variables) as installation:
        await installation.start()
        business = await installation.business()
        yield Server(installation, business, await cloud_client.app_secret(installation.common))


@contextlib.asynccontextmanager
async def over_https(server: Server, directory: Path, host: str, port: int) -> AsyncIterator[Path]:
    """Serve the API over HTTPS at another address, for programs that know nothing else.

    Yields the file of the authority that issued the certificate.
    """
    context, authority = _certified(directory, host)
    listener = await asyncio.start_server(functools.partial(_bridge, server), host, port, ssl=context)
    try:
        yield authority
    finally:
        listener.close()


@contextlib.asynccontextmanager
async def as_proxy(server: Server, directory: Path, host: str) -> AsyncIterator[dict[str, str]]:
    """Serve the API over HTTPS under another host name, as the proxy of programs that have the name built in.

    Yields the variables that make such a program use the proxy and trust its certificate.
    """
    context, authority = _certified(directory, host)

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request_head = await reader.readuntil(b"\r\n\r\n")
        assert request_head.startswith(f"CONNECT {host}:443 ".encode()), request_head
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await writer.start_tls(context)
        await _bridge(server, reader, writer)

    listener = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    try:
        yield {"HTTPS_PROXY": f"http://127.0.0.1:{port}", "SSL_CERT_FILE": str(authority)}
    finally:
        listener.close()


def _certified(directory: Path, host: str) -> tuple[ssl.SSLContext, Path]:
    """Issue a certificate for a host; returns the server's context, and the file of the authority."""
    authority = Authority()
    key, certificate = authority.issue(host)
    files = {"key.pem": key, "certificate.pem": certificate, "authority.pem": authority.pem}
    for name, content in files.items():
        (directory / name).write_bytes(content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "certificate.pem", directory / "key.pem")
    return context, directory / "authority.pem"


async def _bridge(server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    there, back = await asyncio.open_connection("127.0.0.1", server.installation.api_port)
    await asyncio.gather(_copy(reader, back), _copy(there, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def linked_file() -> AsyncIterator[str]:
    """Serve a picture, and yield its URL."""

    async def picture(_: web.Request) -> web.Response:
        return web.Response(body=PNG, content_type="image/png")

    app = web.Application()
    app.router.add_get("/a.png", picture)
    async with web_server.serving(app) as url:
        yield f"{url}/a.png"


class ClientProgram:
    """Running program, and the lines that it has printed."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.url = url  # of its webhook
        self.lines: list[str] = []
        self._process = process

    def ids(self) -> Mapping[str, str]:
        """Return the kinds of the accepted messages by id."""
        sent = (line.split() for line in self.lines if line.startswith("sent "))
        return {words[2]: words[1] for words in sent}

    def statuses(self) -> Mapping[str, set[str]]:
        """Return the statuses that the library received, by id of the message."""
        found: dict[str, set[str]] = collections.defaultdict(set)
        for line in self.lines:
            if line.startswith("status "):
                _, status, message_id = line.split()
                found[message_id].add(status)
        return found

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def until(self, holds: Callable[[], bool]) -> None:
        """Read lines until something holds. Raises `AssertionError` with all lines when it never does."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(SECONDS):
                while not holds():
                    line = await self._process.stdout.readline()
                    assert line, "\n".join(self.lines)
                    self.lines.append(line.decode().strip())
        except TimeoutError:
            raise AssertionError("\n".join(self.lines)) from None


@contextlib.asynccontextmanager
async def running(
    command: Sequence[str], directory: Path, variables: Mapping[str, str], path: str = "/hook"
) -> AsyncIterator[ClientProgram]:
    """Start a program, and wait until its library listens. path: of its webhook"""
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **variables}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=directory,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        program = ClientProgram(process, f"http://127.0.0.1:{variables['PORT']}{path}")
        await program.until(lambda: "ready" in program.lines)
        yield program
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def register(server: Server, program: ClientProgram) -> None:
    """Set the webhook of a program as the app's callback, which its library has to verify."""
    callback = {
        "object": "whatsapp_business_account",
        "callback_url": program.url,
        "verify_token": VERIFY_TOKEN,
        "fields": "messages",
    }
    version = cloud_client.VERSION
    await server.business.check_call("POST", f"/{version}/{IDS.app_id}/subscriptions", callback)
    await server.business.check_call("POST", f"/{version}/{IDS.waba_id}/subscribed_apps", {})


async def is_forgery_refused(program: ClientProgram) -> bool:
    """Return whether the library refuses a webhook with a wrong signature."""
    headers = {"Content-Type": "application/json", "X-Hub-Signature-256": "sha256=" + "0" * 64}
    async with httpx.AsyncClient() as http:
        response = await http.post(program.url, content=FORGED, headers=headers)
    return response.status_code >= 400


async def exchange(server: Server, program: ClientProgram, kinds: Sequence[str], done: Sequence[str] = ()) -> None:
    """Let a program send, and wait until its library has received each status, and the reply of a recipient.

    kinds: of the messages that it sends, to READER; one text more goes to ECHO as the kind `echoed`
    done:  other calls that it makes
    """
    await register(server, program)
    assert await is_forgery_refused(program)
    program.go_on()
    await program.until(lambda: "done all" in program.lines)
    assert sorted(program.ids().values()) == sorted([*kinds, "echoed"]), program.lines
    for name in done:
        assert f"done {name}" in program.lines, program.lines

    def is_complete() -> bool:
        found = program.statuses()
        return all(found[message_id] >= {"sent"} for message_id in program.ids()) and all(
            found[message_id] >= set(STATUSES) for message_id, kind in program.ids().items() if kind != "reaction"
        )

    await program.until(is_complete)
    await program.until(lambda: f"message text {ECHO}" in program.lines)
