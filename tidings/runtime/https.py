"""uvicorn behind our own TLS listener: its HTTP protocols have a connection when the handshake is done."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import uvicorn

from tidings.runtime.tls_server import Handshakes, TlsServer


class Server(uvicorn.Server):
    """uvicorn's, on sockets that it is given. Signals are left to whoever started the process."""

    def __init__(self, config: uvicorn.Config, handshakes: Handshakes | None = None) -> None:
        """handshakes: of TLS."""
        super().__init__(config)
        self.tls: ssl.SSLContext | None = None
        self._handshakes = handshakes

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self.tls is None:
            await super().startup(sockets)
            return
        assert self._handshakes is not None
        listener = TlsServer(sockets or (), self._make_protocol, context=self.tls, handshakes=self._handshakes)
        listener.start()
        self.servers: list[Any] = [listener]
        self.started = True

    def _make_protocol(self) -> Any:
        return self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
