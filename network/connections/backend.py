"""Parts of the process that all sessions share."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from network.connections.places import Places
from network.delay import Delay
from network.directory import bundles, lookups
from network.directory.allowances import DeviceAllowances
from network.directory.logins import Logins
from network.directory.refills import Refills
from network.groups.copies import Copies
from network.groups.kept_messages import KeptMessages
from network.routing.router import Router
from network.settings import Limits
from tidings.wire import device


class Presence(Protocol):
    """Which node each device is attached to."""

    async def claim(self, number: str, epoch: int, part: device.Partition) -> bool:
        """This part of a device attaches here: no other node has it from now on. False when it may not."""
        ...

    def detached(self, number: str, part: device.Partition) -> None:
        """It has not attached after all, or not any more, unless it is by the end of this turn of the loop."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """Parts of the process that all sessions share. presence: `None` when there are no other nodes."""

    router: Router
    copies: Copies
    kept: KeptMessages
    logins: Logins
    lookups: lookups.Lookups
    bundles: bundles.PreKeyBundles
    refills: Refills
    places: Places
    allowances: DeviceAllowances
    delay: Delay
    limits: Limits
    presence: Presence | None = None
