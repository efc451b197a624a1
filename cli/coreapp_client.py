"""Requests from a command to the Coreapps of its installation, over the link that Webapps use."""

from __future__ import annotations

import dataclasses
import getpass
import os
import socket
from collections.abc import Callable
from typing import Any

from cli import guard
from cli.settings import CoreappSettings
from tidings.installation.settings import InstallationSettings
from tidings.net import exposure
from tidings.net.exposure import LinkCalls
from tidings.secrets import operator_key
from tidings.wire import core, single_requests
from tidings.wire.single_requests import NoConnection, NoResponse


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

    async def call(self, address: str, make: Callable[[int], core.Request]) -> Any:
        """Send one request to the Coreapp at `host:port`. Returns its response. Raises `CommandFailure`.

        make: returns the request with the given request number.
        """
        try:
            answer = await single_requests.call(
                address, make, calls=self.calls, link_key=self.key, operator_key=self.operator_key
            )
        except (NoConnection, NoResponse) as error:
            raise guard.CommandFailure(str(error)) from error
        if isinstance(answer, core.Refused):
            raise guard.CommandFailure(f"the Coreapp at {address} refuses: {answer.details}")
        return answer


def calls_of(settings: InstallationSettings) -> LinkCalls:
    """Return the verification of the Coreapps of an installation. Raises `UnusableCertificate`."""
    return exposure.link_calls(settings.tls_files, settings.plaintext, settings.coreapp_tls_name)


def operator() -> str:
    """Return `user@host` of the user who runs the command, for audit entries."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
