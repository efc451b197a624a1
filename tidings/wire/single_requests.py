"""Requests to Coreapps over a connection each, for callers that make few."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from typing import Any

from tidings.net import tls
from tidings.net.exposure import LinkCalls
from tidings.wire import core
from tidings.wire.connection import Connection, Disconnected, connect
from tidings.wire.requests import Requests

HELLO_SECONDS, RESPONSE_SECONDS = 10.0, 30.0


class NoConnection(Exception):
    """The Coreapp cannot be reached, or does not know the request. The request was not sent."""


class NoResponse(Exception):
    """The Coreapp does not respond. It is unknown whether it has processed the request."""


async def call(
    address: str,
    make: Callable[[int], core.Request],
    *,
    calls: LinkCalls,
    link_key: str,
    operator_key: str,
    version: int = 0,
) -> Any:
    """Send one request to the Coreapp at `host:port`. Returns its response. Raises `NoConnection` and `NoResponse`,
    whose texts name the Coreapp.

    make: returns the request with the given request number
    calls: verification of the Coreapps
    operator_key: opens operators' requests; empty for none
    version: `LINK_VERSION` of the first release that knows the request
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    caller = _Caller()
    try:
        connection = await connect(host, int(port), core.Response, caller, tls=calls.context_for(host))
    except ssl.SSLError as error:
        raise NoConnection(f"the Coreapp at {address}: {tls.describe(error)}") from error
    except OSError as error:
        raise NoConnection(f"the Coreapp at {address} cannot be reached: {error}") from error
    try:
        hello = functools.partial(core.Hello, key=link_key, operator_key=operator_key)
        greeted = await caller.requests.call(connection, hello, timeout=HELLO_SECONDS)
        if greeted.version < version:
            raise NoConnection(f"the Coreapp at {address} {core.EARLIER_RELEASE}")
        return await caller.requests.call(connection, make, timeout=RESPONSE_SECONDS)
    except (Disconnected, TimeoutError) as error:
        raise NoResponse(f"the Coreapp at {address} does not respond: {error}") from error
    finally:
        connection.close("done")


class _Caller:
    """Owner of the connection to one Coreapp."""

    def __init__(self) -> None:
        self.requests: Requests[Any] = Requests()

    def opened(self, connection: Connection) -> None:
        """Ignore the event: `call` sends the requests."""

    def received(self, connection: Connection, frame: Any) -> None:
        self.requests.resolve(frame.n, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        self.requests.lost(reason)
