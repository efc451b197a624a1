"""`python -m harness.graph_sink`: bare HTTP server in place of the Cloud API, which accepts every message.

`harness.graph_process` starts it and sends it requests. It responds after a delay, refuses messages beyond a rate with
130429, and posts no events.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from typing import Any, cast

import httptools
import msgspec
import uvloop

from harness import control
from harness.mariadb import free_port

_THROTTLED = (
    b'{"error":{"message":"(#130429) Rate limit hit","type":"OAuthException","code":130429,"error_data":'
    b'{"messaging_product":"whatsapp","details":"Cloud API message throughput has been reached."},"fbtrace_id":"A"}}'
)


class _Posted(msgspec.Struct):
    to: str
    biz_opaque_callback_data: str


_decode = msgspec.json.Decoder(_Posted).decode


def wamid(message_id: str) -> str:
    """Return the Cloud API's id of a message. message_id: the sender's id"""
    return f"wamid.{message_id}"


class GraphSink:
    """Messages that were accepted."""

    def __init__(self, delay: float, rate: float) -> None:
        """delay: seconds until a response. rate: messages per second, and at once; 0 for no limit."""
        self.delay = delay
        self._rate = rate
        self._full_at = 0.0
        self._times: dict[str, float] = {}  # by the sender's id: Unix seconds of its first post
        self._repeated = 0
        self._throttled = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []

    def take(self, body: bytes) -> tuple[int, bytes]:
        """Accept or refuse a message. Returns HTTP status and body of the response."""
        if self._is_over_the_rate():
            self._throttled += 1
            return 400, _THROTTLED
        posted = _decode(body)
        message_id = posted.biz_opaque_callback_data
        if message_id in self._times:
            self._repeated += 1
        else:
            self._times[message_id] = time.time()
        while self._waiters and self._waiters[0][0] <= len(self._times):
            self._waiters.pop(0)[1].set_result(None)
        return 200, msgspec.json.encode(
            {
                "messaging_product": "whatsapp",
                "contacts": [{"input": posted.to, "wa_id": posted.to}],
                "messages": [{"id": wamid(message_id)}],
            }
        )

    def _is_over_the_rate(self) -> bool:
        """Consume a token of a bucket that holds those of a second."""
        if not self._rate:
            return False
        now = time.monotonic()
        full_at = max(self._full_at, now) + 1.0 / self._rate
        if full_at > now + 1.0:
            return True
        self._full_at = full_at
        return False

    async def respond(self, request: dict[str, Any]) -> Any:
        """Carry out a request of the parent and return its response."""
        match request["do"]:
            case "wait":
                if len(self._times) < request["messages"]:
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.append((request["messages"], waiter))
                    self._waiters.sort(key=lambda entry: entry[0])
                    await waiter
                return None
            case "take":
                found = {"times": self._times, "repeated": self._repeated, "throttled": self._throttled}
                self._times, self._repeated, self._throttled = {}, 0, 0
                return found
        raise ValueError(request["do"])


class _Server(asyncio.Protocol):
    """One kept-alive connection."""

    def __init__(self, sink: GraphSink) -> None:
        self._sink = sink
        self._parser = httptools.HttpRequestParser(self)
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        if self._parser.get_method() != b"POST":
            # Templates of the WABA: there are none.
            self._respond(200, b'{"data":[]}')
            return
        status, content = self._sink.take(body)
        asyncio.get_running_loop().call_later(self._sink.delay, self._respond, status, content)

    def _respond(self, status: int, content: bytes) -> None:
        head = b"HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._transport.write(head % (status, len(content)) + content)


async def _serve(options: argparse.Namespace) -> None:
    sink = GraphSink(options.delay, options.rate)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Server(sink), "127.0.0.1", options.port, backlog=1024
    )
    await control.serve(options.control_fd, sink.respond)
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--port", type=int, default=free_port())
    parser.add_argument("--delay", type=float, default=0.0, help="seconds until a response")
    parser.add_argument("--rate", type=float, default=0.0, help="messages per second; 0 for no limit")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
