"""`python -m harness.sink`: a webhook that accepts everything, in a separate process.

The parent holds one end of a socket, `--control-fd`, over which it sends requests, one JSON object per line:

    {"do": "counts"}                     number of requests, statuses, complete messages, bad signatures
    {"do": "wait", "complete": 10000}    responds when 10,000 messages have all three statuses
    {"do": "set", "status": 503, "delay": 0.05}   response to requests from now on, and its delay in seconds
    {"do": "take"}                       all records since the last `take`, in the file that the response names
    {"do": "cloud", "secret": "…"}       requests are from now on those of the Cloud API, signed with this app secret
    {"do": "verify", "every": 1}         check the signature of every n-th request from now on

It responds to the verification of a callback (GET with `hub.challenge`) with the challenge. The process ends when the
socket closes.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import parse_qs, urlsplit

import httptools
import msgspec
import uvloop

from harness import cloud_webhook_body, webhook_body
from harness.cloud_webhook_body import AppSecretVerifier
from harness.webhook_body import Body, Verifier

_BITS = {"sent": 1, "delivered": 2, "read": 4}
_ALL = 7
_REASONS = {200: b"OK", 201: b"Created", 500: b"Internal Server Error", 503: b"Service Unavailable"}


class Record(msgspec.Struct, array_like=True):
    """One status, or one inbound message (`status` is then `inbound`), as it arrived."""

    # Unix seconds.
    time: float
    event_id: str
    message_id: str
    status: str
    # HTTP status of our response.
    response_status: int
    sender: str = ""
    # Text of an inbound message.
    text: str = ""
    # Details of the first error of a status `failed`, in the format of v1.
    reason: str = ""


class Counts(msgspec.Struct):
    """Counts since the last `take`; those of signatures, unreadable bodies and batches since the start."""

    # All requests.
    requests: int = 0
    # Entries in accepted requests.
    statuses: int = 0
    inbound: int = 0
    # Messages with all three statuses.
    complete: int = 0
    verified: int = 0
    bad_signatures: int = 0
    unreadable: int = 0
    # Statuses in requests with several.
    batched: int = 0


class SignatureCheck(Protocol):
    """Check of a request's signature."""

    def is_valid(self, headers: dict[bytes, bytes], body: bytes) -> bool: ...


class Sink:
    """Received callbacks. Records stay in memory until they are taken: some 250 bytes each."""

    def __init__(self, directory: Path, secret: str, verify_every: int) -> None:
        """verify_every: check the signature of every n-th request; 0 checks none."""
        self.counts = Counts()
        self.status = 200
        self.delay = 0.0
        self._directory = directory
        self._verifier: SignatureCheck | None = Verifier(secret) if secret else None
        self._decode: Callable[[bytes], Body] = webhook_body.decode
        self._verify_every = verify_every
        self._records: list[Record] = []
        self._progress: dict[str, int] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._files = 0

    def record(self, headers: dict[bytes, bytes], body: bytes) -> None:
        """Record one request."""
        counts = self.counts
        counts.requests += 1
        if self._verifier is not None and self._verify_every and counts.requests % self._verify_every == 0:
            counts.verified += 1
            counts.bad_signatures += not self._verifier.is_valid(headers, body)
        try:
            content = self._decode(body)
        except msgspec.MsgspecError:
            counts.unreadable += 1
            return
        if len(content.statuses) > 1:
            counts.batched += len(content.statuses)
        now = time.time()
        event_id = headers.get(b"webhook-id", b"").decode()
        for status in content.statuses:
            reason = status.errors[0].details if status.errors else ""
            own_id = status.event_id or event_id
            self._records.append(Record(now, own_id, status.id, status.status, self.status, reason=reason))
            if self.status == 200:
                self._note(status.id, status.status)
        for message in content.messages:
            text = message.text.body if message.text else ""
            self._records.append(Record(now, event_id, message.id, "inbound", self.status, message.sender, text))
            counts.inbound += self.status == 200

    def _note(self, message_id: str, status: str) -> None:
        self.counts.statuses += 1
        before = self._progress.get(message_id, 0)
        after = before | _BITS.get(status, 0)
        if after == before:
            return
        self._progress[message_id] = after
        if after == _ALL:
            self.counts.complete += 1
            while self._waiters and self._waiters[0][0] <= self.counts.complete:
                self._waiters.pop(0)[1].set_result(None)

    async def respond(self, request: dict[str, Any]) -> Any:
        """Carry out a request of the control socket and return its response."""
        match request["do"]:
            case "counts":
                return self.counts
            case "wait":
                if self.counts.complete < request["complete"]:
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append((request["complete"], waiter))
                    self._waiters.sort(key=lambda entry: entry[0])
                    await waiter
                return self.counts
            case "set":
                self.status, self.delay = request["status"], request["delay"]
                return self.counts
            case "cloud":
                self._verifier = AppSecretVerifier(request["secret"])
                self._decode = cloud_webhook_body.decode
                return self.counts
            case "verify":
                self._verify_every = request["every"]
                return self.counts
            case "take":
                self._files += 1
                path = self._directory / f"callbacks-{self._files}.msgpack"
                path.write_bytes(msgspec.msgpack.encode(self._records))
                self._records = []
                self._progress = {}
                kept = self.counts
                self.counts = Counts(
                    verified=kept.verified,
                    bad_signatures=kept.bad_signatures,
                    unreadable=kept.unreadable,
                    batched=kept.batched,
                )
                return {"path": str(path)}
        raise ValueError(request["do"])


class Server(asyncio.Protocol):
    """One kept-alive connection from a sender."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[bytes, bytes] = {}
        self._url = b""
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        url, self._url = self._url, b""
        if self._parser.get_method() == b"GET":
            challenge = parse_qs(urlsplit(url).query).get(b"hub.challenge", [b""])[0]
            self._headers = {}
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(challenge), challenge))
            return
        sink = self._sink
        response = b"HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n" % (sink.status, _REASONS.get(sink.status, b"Status"))
        sink.record(self._headers, self._body)
        self._headers, self._body = {}, b""
        if sink.delay:
            asyncio.get_running_loop().call_later(sink.delay, self._transport.write, response)
        else:
            self._transport.write(response)


async def serve(control: socket.socket, directory: Path, secret: str, verify_every: int, port: int) -> None:
    """Listen, report the port on the control socket, then handle requests until its other end closes."""
    sink = Sink(directory, secret, verify_every)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Server(sink), "127.0.0.1", port, backlog=1024)
    reader, writer = await asyncio.open_connection(sock=control)

    async def reply(request: dict[str, Any]) -> None:
        response = await sink.respond(request)
        writer.write(msgspec.json.encode({"n": request["n"], "response": response}) + b"\n")

    writer.write(msgspec.json.encode({"n": 0, "response": {"port": server.sockets[0].getsockname()[1]}}) + b"\n")
    tasks: set[asyncio.Task[None]] = set()
    async for line in reader:
        task = loop.create_task(reply(msgspec.json.decode(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    for task in tasks:
        task.cancel()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--directory", type=Path, required=True, help="where records go")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--secret", default="", help="of the signatures; empty checks none")
    parser.add_argument("--verify-every", type=int, default=100)
    options = parser.parse_args()
    control = socket.socket(fileno=options.control_fd)
    control.setblocking(False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(control, options.directory, options.secret, options.verify_every, options.port))


if __name__ == "__main__":
    main()
