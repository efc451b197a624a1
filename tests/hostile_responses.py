"""HTTP responses that never end or cost far more than their content, and a host that sends them."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import threading
from typing import Self

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Content-Type: image/png\r\nTransfer-Encoding: chunked\r\n\r\n"
# Bytes that are sent at once.
BLOCK = 64 * 1024
# Seconds that a connection waits for others.
GATHERING = 12.0


@dataclasses.dataclass(frozen=True)
class Form:
    """Form of a hostile response."""

    head: bytes  # sent once
    endless: bytes = b""  # sent repeatedly, as fast as it is accepted; empty for nothing
    dribbled: bool = False  # True to send each byte separately

    def block(self) -> bytes:
        """Return about 64 KiB of the endless part, or one byte of it."""
        return self.endless if self.dribbled else self.endless * (BLOCK // max(1, len(self.endless)))


HEADS = {
    "interim responses": Form(b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "a header line": Form(OK + b"X: ", b"x"),
    "headers": Form(OK, b"X: y\r\n"),
    "a status line": Form(b"HTTP/1.1 200 ", b"O"),
    "a header line byte by byte": Form(OK + b"X: ", b"x", dribbled=True),
    "interim headers": Form(b"HTTP/1.1 102 Processing\r\n", b"X: y\r\n"),
}
BODIES = {
    "chunks of one byte": Form(CHUNKED, b"1\r\nx\r\n"),
    "chunks of one byte with extensions": Form(CHUNKED, b"1;" + b"e" * 200 + b"\r\nx\r\n"),
    "a chunk extension": Form(CHUNKED + b"1;", b"e"),
    "trailers": Form(CHUNKED + b"0\r\n", b"X: y\r\n"),
    "a trailer line": Form(CHUNKED + b"0\r\nX: ", b"y"),
    "chunks byte by byte": Form(CHUNKED, b"1\r\nx\r\n", dribbled=True),
}
# Ends only with the time limit of the request: no other limit is exceeded.
SILENT = {
    "a content length without content": Form(OK + b"Content-Length: 1000000\r\n\r\n"),
    "content byte by byte": Form(OK + b"Content-Length: 10000000\r\n\r\n", b"x", dribbled=True),
}
# The content is never decoded: gigabytes after decompression are a few bytes of an unknown type here.
BOMB = {"compressed content": Form(OK + b"Content-Encoding: gzip\r\n\r\n", b"\x1f\x8b\x08\x00" + bytes(60))}
ALL = {**HEADS, **BODIES, **SILENT, **BOMB}


class HostileHost:
    """Host that responds to each request in one form, each connection in a thread, at line speed. A context manager."""

    def __init__(
        self, form: Form, tls: ssl.SSLContext | None = None, *, address: str = "127.0.0.1", together: int = 1
    ) -> None:
        """Create the host at a loopback address.

        tls: context for TLS, with one record per part that is sent at once; None for plain HTTP.
        together: connections that are open before the first of them gets a response, at most `GATHERING` seconds.
        """
        self._form = form
        self._tls = tls
        self._listening = socket.create_server((address, 0), backlog=128)
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_stopped = threading.Event()
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://{address}:{self.port}/"
        self.sent = 0  # bytes accepted by all connections
        self.connections = 0  # connections accepted so far
        self.most_open = 0  # connections open at once, at most
        self._together = together
        self._are_together = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_stopped.set()
        self._are_together.set()
        # Wakes the thread that accepts connections.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                with self._lock:
                    self._open.append(connection)
                    self.connections += 1
                    self.most_open = max(self.most_open, len(self._open))
                    if self.most_open >= self._together:
                        self._are_together.set()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                self._respond(connection)
            else:
                with self._tls.wrap_socket(connection, server_side=True) as secured:
                    self._respond(secured)
        with self._lock:
            self._open.remove(connection)

    def _respond(self, connection: socket.socket) -> None:
        connection.recv(BLOCK)
        self._are_together.wait(GATHERING)
        self._send(connection, self._form.head)
        block = self._form.block()
        while block:
            if self._form.dribbled:
                for index in range(len(block)):
                    self._send(connection, block[index : index + 1])
                    self._is_stopped.wait(0.0002)
            else:
                self._send(connection, block)
        self._is_stopped.wait()

    def _send(self, connection: socket.socket, data: bytes) -> None:
        connection.sendall(data)
        with self._lock:
            self.sent += len(data)
