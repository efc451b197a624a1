"""Parts of the process that all sessions share."""

from __future__ import annotations

import dataclasses
from typing import Protocol

from network.connections.connection_slots import ConnectionSlots
from network.delay import Delay
from network.directory import bundles, lookups
from network.directory.device_rate_limits import DeviceRateLimiter
from network.directory.logins import DeviceLogins
from network.directory.refills import Refills
from network.groups.copies import Copies
from network.groups.kept_messages import KeptMessages
from network.routing.router import Router
from network.settings import Limits
from tidings.wire import device


class PresenceRecord(Protocol):
    """Record of the node that each device is attached to."""

    async def claim(self, number: str, epoch: int, part: device.Partition) -> bool:
        """Attach this partition of a device here, and from then on at no other node. False when it may not attach."""
        ...

    def detached(self, number: str, part: device.Partition) -> None:
        """Record that the partition has detached or did not attach after all, unless it is attached again by the end of
        this event-loop iteration.
        """
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Backend:
    """Parts of the process that all sessions share."""

    router: Router
    copies: Copies
    kept: KeptMessages
    logins: DeviceLogins
    lookups: lookups.Lookups
    bundles: bundles.PreKeyBundles
    refills: Refills
    slots: ConnectionSlots
    rate_limits: DeviceRateLimiter
    delay: Delay
    limits: Limits
    presence: PresenceRecord | None = None  # `None` when there are no other nodes.
