"""Parts of the process that all sessions share."""

from __future__ import annotations

import dataclasses

from network.delay import Delay
from network.directory.directory import Directory
from network.groups.copies import Copies
from network.groups.kept_messages import KeptMessages
from network.routing.router import Router
from network.settings import Limits
from tidings.net.unauthenticated import UnauthenticatedClients


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """Parts of the process that all sessions share."""

    router: Router
    copies: Copies
    kept: KeptMessages
    directory: Directory
    unauthenticated: UnauthenticatedClients
    delay: Delay
    limits: Limits
