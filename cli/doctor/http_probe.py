"""Single HTTP/1.1 request on a new connection, with the time that each part took."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import ssl
import time
from collections.abc import Mapping

from cli.doctor import clock
from tidings.egress.responses import BadResponse, ConnectionClosedEarly, ContentParser, EgressConnection, ReadCpuLimit


@dataclasses.dataclass(frozen=True, slots=True)
class ProbeResponse:
    """Head of a response, with timings."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    connected: float  # seconds from the start until connected, including TLS
    answered: float  # seconds from the start until the head of the response arrived
    at: float  # local time at that moment, Unix seconds
    tls: str = ""  # version and cipher; empty without TLS
    ends: float = 0.0  # expiry of the server's certificate, Unix seconds; 0 without one or if it was not verified

    @property
    def date(self) -> float | None:
        """Server's clock in whole Unix seconds; None without a valid `Date` header."""
        return clock.of_header(self.headers.get("date", ""))


async def send_request(
    sock: socket.socket,
    request: bytes,
    *,
    host: str,
    tls: ssl.SSLContext | None,
    started: float,
) -> ProbeResponse:
    """Send a request on a connected socket, read the head of the response, and close the socket.

    Raises `OSError`, including `ssl.SSLError`.

    started: monotonic seconds when the connection attempt started.
    """
    response = ContentParser()
    connection = EgressConnection(response, ReadCpuLimit())
    try:
        await connection.open(sock, host, tls)
        connected, (over, ends) = time.monotonic() - started, _describe(connection.secured)
        await connection.request(request)
        answered, at = time.monotonic() - started, time.time()
        return ProbeResponse(response.status, response.headers, connected, answered, at, over, ends)
    except ConnectionClosedEarly:
        raise
    except BadResponse as error:
        raise ConnectionError(f"the server does not speak HTTP/1.1: {error}") from None
    finally:
        connection.abort()


async def dial(host: str, port: int) -> socket.socket:
    """Return a socket connected to a host named by the installation's settings. Raises `OSError`.

    Not for hosts that others name: it applies no egress rules.
    """
    loop = asyncio.get_running_loop()
    failure: OSError = ConnectionError("the name has no address")
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure


def _describe(secured: ssl.SSLObject | None) -> tuple[str, float]:
    if secured is None:
        return "", 0.0
    shown, cipher = secured.getpeercert() or {}, secured.cipher()
    ends = ssl.cert_time_to_seconds(str(shown["notAfter"])) if "notAfter" in shown else 0.0
    return f"{secured.version()} {cipher[0] if cipher else ''}", float(ends)
