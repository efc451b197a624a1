"""Requests from a command to the Coreapps of its installation, over the link that Webapps use."""

from __future__ import annotations

import dataclasses
import functools
import getpass
import os
import socket
import ssl
from collections.abc import Callable
from typing import Any

from cli import guard
from cli.settings import CoreappSettings
from tidings.installation.settings import InstallationSettings
from tidings.net import exposure, tls
from tidings.net.exposure import LinkCalls
from tidings.secrets import operator_key
from tidings.wire import core
from tidings.wire.connection import Connection, Disconnected, connect
from tidings.wire.requests import Requests

HELLO_SECONDS = 10.0
ANSWER_SECONDS = 30.0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class CoreappClient:
    """Client for Coreapps that opens one connection per request, since commands make few requests."""

    key: str  # link key
    calls: LinkCalls  # verification of the Coreapps
    _: dataclasses.KW_ONLY
    operator_key: str = ""  # opens replays and purges

    @classmethod
    def of(cls, settings: CoreappSettings) -> CoreappClient:
        """Create the client from settings. Raises `UnusableCertificate`."""
        own = operator_key.derive(settings.secrets.master_key.keys[0])
        return cls(settings.secrets.link_key, calls_of(settings), operator_key=own)

    async def call(self, address: str, make: Callable[[int], core.Question]) -> Any:
        """Send one request to the Coreapp at `host:port`. Returns its response. Raises `CommandFailure`.

        make: returns the request with the given request number.
        """
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        caller = _Caller()
        try:
            connection = await connect(host, int(port), core.Answer, caller, tls=self.calls.context_for(host))
        except ssl.SSLError as error:
            raise guard.CommandFailure(f"the Coreapp at {address}: {tls.describe(error)}") from error
        except OSError as error:
            raise guard.CommandFailure(f"the Coreapp at {address} cannot be reached: {error}") from error
        try:
            hello = functools.partial(core.Hello, key=self.key, operator_key=self.operator_key)
            await caller.requests.call(connection, hello, timeout=HELLO_SECONDS)
            answer = await caller.requests.call(connection, make, timeout=ANSWER_SECONDS)
        except (Disconnected, TimeoutError) as error:
            raise guard.CommandFailure(f"the Coreapp at {address} does not answer: {error}") from error
        finally:
            connection.close("done")
        if isinstance(answer, core.Refused):
            raise guard.CommandFailure(f"the Coreapp at {address} refuses: {answer.details}")
        return answer


def calls_of(settings: InstallationSettings) -> LinkCalls:
    """Return the verification of the Coreapps of an installation. Raises `UnusableCertificate`."""
    return exposure.link_calls(settings.tls_files, settings.plaintext, settings.coreapp_tls_name)


class _Caller:
    """Owner of the connection to one Coreapp."""

    def __init__(self) -> None:
        self.requests: Requests[Any] = Requests()

    def opened(self, connection: Connection) -> None:
        """Ignore the event: `CoreappClient.call` sends the requests."""

    def received(self, connection: Connection, frame: Any) -> None:
        self.requests.answered(frame.n, frame)

    def closed(self, connection: Connection, reason: str) -> None:
        self.requests.lost(reason)


def who() -> str:
    """Return `user@host` of the user who runs the command, for audit entries."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
