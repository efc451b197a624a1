"""Links: direct connections on which nodes exchange frames.

Each node listens, and connects to every other node that it has frames for. A node's address and the token that opens a
link to it are in Redis while the node is alive: read access to Redis is sufficient to open a link. With a certificate
of the installation, both sides must present one.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import ipaddress
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence, Set

import msgspec
from prometheus_client import Counter

from network.cluster import frames
from network.cluster.frames import FromNode, LinkAddress
from network.cluster.membership import NodeMembership
from network.cluster.redis_client import RedisUnavailable
from network.errors import CannotListen, NetworkError
from network.settings import Cluster
from tidings.net import tls, unauthenticated
from tidings.net.socket_server import SocketServer
from tidings.net.tls import Clients, FileContext, TlsFiles
from tidings.net.tls_server import Handshakes
from tidings.net.unauthenticated import UnauthenticatedLinks
from tidings.wire.connection import Connection, connect, listen

log = logging.getLogger(__name__)

RECEIVED = Counter("tidings_network_node_frames_received_total", "Frames from other nodes")

# Seconds that another node has to accept a connection, and then to confirm a batch.
TIMEOUT = 1.5
# Seconds after a failure without a further attempt.
RETRY_SECONDS = 0.25
# Connections per second to the listener, with or without TLS handshakes, and connections at once.
CONNECTIONS, BURST = 50.0, 100.0

Received = Callable[[str, FromNode], None]


class NodeUnavailable(NetworkError):
    """Another node cannot be reached or does not respond. Whether it has received the batch is unknown."""


class NodeLinks:
    """Service with all links of one node. It receives from `open` until it is stopped, and sends until `close`.

    contexts: TLS of both sides; `None` without a certificate.
    """

    name = "links"

    def __init__(self, membership: NodeMembership, settings: Cluster, files: TlsFiles) -> None:
        """files: certificate of the installation; without one the links do not use TLS. Raises `CannotListen` when it
        cannot be used.
        """
        self._membership = membership
        self._settings = settings
        self._links: dict[str, _Link] = {}
        self._listening: asyncio.Server | SocketServer | None = None
        self._callers: dict[str, Connection] = {}
        try:
            self._accepting, self._calling = _contexts(files)
        except tls.UnusableCertificate as error:
            raise CannotListen(f"TIDINGS_TLS_CERTIFICATE: {error}") from error

    @property
    def contexts(self) -> Sequence[FileContext | None]:
        """Return the TLS contexts of the called and the calling side."""
        return self._accepting, self._calling

    # Called side.

    async def open(self, received: Received) -> LinkAddress:
        """Listen; return the address and the token that opens a link. Raises `CannotListen`.

        received: called with (source, frame) for each frame, in the order of its source.
        """
        host, port = self._settings.node_address
        unauthenticated_links, token = UnauthenticatedLinks(), secrets.token_urlsafe(32)
        try:
            host = host or await _own_address(self._settings.address.hosts)
            self._listening = await listen(
                host,
                port,
                frames.LinkRequest,
                lambda: _Caller(received, token, unauthenticated_links, self._callers),
                tls=self._accepting,
                handshakes=Handshakes("nodes", rate=CONNECTIONS, burst=BURST),
                rate=CONNECTIONS,
                burst=BURST,
            )
        except OSError as error:
            raise CannotListen(f"TIDINGS_NETWORK_NODE_ADDRESS {host}:{port}: {error.strerror or error}") from error
        bound = self._listening.sockets[0].getsockname()[1]
        log.info("links.listening", extra={"host": host, "port": bound, "tls": self._accepting is not None})
        return LinkAddress(host, bound, token)

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for connection in list(self._callers.values()):
            connection.close("this node is shutting down")

    # Calling side.

    async def post(self, node: str, packet: bytes) -> None:
        """Send a batch of encoded frames to another node; return when it has confirmed the batch.

        Raises `NodeUnavailable`, and `ValueError` for a batch that is too long.
        """
        link = self._links.get(node)
        if link is None:
            link = self._links[node] = _Link(self._membership, node, self._calling)
        await link.post(packet)

    def drop(self, node: str) -> None:
        """Close the link to a node that has left."""
        link = self._links.pop(node, None)
        if link is not None:
            link.end("it is gone")

    def evict(self, kept: Set[str]) -> None:
        """Close the links to all other nodes than these."""
        for node in self._links.keys() - kept:
            self.drop(node)

    def close(self) -> None:
        """Close all connections."""
        self._stop_listening()
        for node in list(self._links):
            self.drop(node)


@dataclasses.dataclass(slots=True, eq=False)
class _Link:
    """Connection to one other node, opened when there are frames to send, and opened again after a failure."""

    membership: NodeMembership
    node: str
    context: ssl.SSLContext | None
    _address: LinkAddress | None = None
    _connection: Connection | None = None
    _response: asyncio.Future[None] | None = None
    _lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    _retry_at: float = 0.0
    _is_away: bool = False

    async def post(self, packet: bytes) -> None:
        """Send one batch. Raises `NodeUnavailable`."""
        # After a node left and returned, a batch from before that may still be in progress.
        async with self._lock:
            await self._post(packet)

    async def _post(self, packet: bytes) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._retry_at:
            raise NodeUnavailable("it was unreachable a moment ago")
        try:
            async with asyncio.timeout(TIMEOUT):
                connection = self._connection or await self._call()
            if connection is not self._connection:
                raise NodeUnavailable("it closed the connection at once")
            self._response = loop.create_future()
            connection.send(frames.FrameBatch(packet))
            async with asyncio.timeout(TIMEOUT):
                await self._response
        except (OSError, TimeoutError, RedisUnavailable, NodeUnavailable) as error:
            self._retry_at = loop.time() + RETRY_SECONDS
            self._failed(error)
            raise NodeUnavailable(str(error) or "it does not respond") from error
        finally:
            self._response = None
        if self._is_away:
            self._is_away = False
            log.info("node.reached", extra={"node": self.node})

    async def _call(self) -> Connection:
        if self._address is None:
            self._address = await self._look_up()
        where = self._address
        connection = await connect(where.host, where.port, frames.LinkResponse, self, tls=self.context)
        connection.send(frames.Call(self.membership.me, where.token))
        return connection

    async def _look_up(self) -> LinkAddress:
        try:
            found = await self.membership.find_link(self.node)
        except msgspec.MsgspecError as error:
            raise NodeUnavailable(f"it runs another version: {error}") from error
        if found is None:
            raise NodeUnavailable("it has published no address")
        return found

    def _failed(self, error: Exception) -> None:
        self.end("it has failed")
        if not self._is_away:
            # Logged once until the node is reached again.
            self._is_away = True
            where = f"{self._address.host}:{self._address.port}" if self._address is not None else ""
            log.warning("node.unreachable", extra={"node": self.node, "address": where, "error": str(error)[:200]})

    def end(self, reason: str) -> None:
        """Close the connection; a batch in progress fails."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort(reason)
        self._break(reason)

    def _break(self, reason: str) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(NodeUnavailable(reason))

    # Events of the connection.

    def opened(self, connection: Connection) -> None:
        self._connection = connection

    def received(self, connection: Connection, frame: frames.LinkResponse) -> None:
        if self._connection is connection and self._response is not None and not self._response.done():
            self._response.set_result(None)

    def closed(self, connection: Connection, reason: str) -> None:
        if self._connection is connection:
            self._connection = None
            self._break(reason)


@dataclasses.dataclass(slots=True, eq=False)
class _Caller:
    """Connection from another node; a newer one of the same node replaces it. Its first frame must be a `Call`."""

    on_frame: Received
    token: str
    unauthenticated_links: UnauthenticatedLinks
    callers: dict[str, Connection]
    _source: str = ""

    def opened(self, connection: Connection) -> None:
        self.unauthenticated_links.opened(connection)

    def received(self, connection: Connection, frame: frames.LinkRequest) -> None:
        if isinstance(frame, frames.Call):
            self._authenticate(connection, frame)
        elif not self._source:
            self.unauthenticated_links.refuse(connection, unauthenticated.NO_HELLO)
        else:
            self._take(frame.frames)
            connection.send(frames.Taken())

    def closed(self, connection: Connection, reason: str) -> None:
        self.unauthenticated_links.closed(connection)
        if self.callers.get(self._source) is connection:
            del self.callers[self._source]
            log.debug("node.hung_up", extra={"node": self._source, "reason": reason})

    def _authenticate(self, connection: Connection, call: frames.Call) -> None:
        if not hmac.compare_digest(call.token.encode(), self.token.encode()):
            self.unauthenticated_links.refuse(connection, unauthenticated.WRONG_KEY)
            return
        self.unauthenticated_links.authenticated(connection)
        former = self.callers.get(call.source)
        if former is not None:
            # Its sender has given up the frames left on it, and they would arrive after those sent on this one.
            former.abort("it has opened a new connection")
        self._source = call.source
        self.callers[call.source] = connection

    def _take(self, packet: bytes) -> None:
        try:
            some = frames.decode(packet)
        except msgspec.MsgspecError as error:
            # Perhaps the node has another version. It stores the envelopes for which it gets no response.
            log.error("packet.unreadable", extra={"node": self._source, "error": str(error)[:200]})
            some = frames.decode_readable(packet)
        RECEIVED.inc(len(some))
        for frame in some:
            try:
                self.on_frame(self._source, frame)
            except Exception:
                # One failing frame must not affect those behind it.
                log.exception("frame.failed", extra={"node": self._source, "frame": type(frame).__name__})


def _contexts(files: TlsFiles) -> tuple[FileContext | None, FileContext | None]:
    """Return the TLS contexts of the called and the calling side. Raises `UnusableCertificate`."""
    if not files.chain:
        return None, None
    least = ssl.TLSVersion.TLSv1_3
    # Certificates do not name the addresses found in Redis, so any certificate of the installation is accepted.
    return (
        tls.server("nodes", files, clients=Clients.REQUIRED, least=least),
        tls.client("nodes", files, least=least, named=False),
    )


async def _own_address(servers: Sequence[tuple[str, int]]) -> str:
    """Return this machine's address on the route to Redis, where the other nodes reach it. Raises `OSError`.

    Of several servers, the first that is not on this machine decides.
    """
    own = ""
    for host, port in servers:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            # `connect` on a datagram socket sends nothing.
            probe.connect(address)
            own = str(probe.getsockname()[0])
        if not ipaddress.ip_address(own).is_loopback:
            break
    return own
