"""Directory of registered devices, as this process knows it."""

from __future__ import annotations

from collections.abc import Sequence

from network.directory.bundles import PreKeyBundles
from network.directory.device_rate_limits import DeviceRateLimiter
from network.directory.logins import DeviceLogins
from network.directory.lookups import Lookups
from network.directory.other_nodes import NO_NODES, OtherNodes
from network.directory.recipients import Recipients
from network.directory.refills import Refills
from network.directory.seen_devices import SeenDevices
from network.settings import DeviceRateLimits
from tidings.aio.clock import Clock
from tidings.net.unauthenticated import Network
from tidings.storage.database import Database


class Directory:
    """Parts of this package, and changes that invalidate the caches of every node.

    Report a change after its commit; afterwards no node uses the previous state.

    other_nodes: nodes to which devices may be attached, too.
    """

    def __init__(
        self, database: Database, rate_limits: DeviceRateLimits, clock: Clock, *, trusted: tuple[Network, ...] = ()
    ) -> None:
        """trusted: proxies whose `X-Forwarded-For` is believed."""
        self.rate_limits = DeviceRateLimiter(rate_limits, clock)
        self.recipients = Recipients(database)
        self.seen = SeenDevices(trusted)
        self.logins = DeviceLogins(database, self.seen, self.recipients)
        self.refills = Refills()
        self.lookups = Lookups(database)
        self.bundles = PreKeyBundles(database, self.refills, self.rate_limits)
        self.other_nodes: OtherNodes = NO_NODES

    def join(self, other_nodes: OtherNodes) -> None:
        """Connect the directory to the other nodes."""
        self.other_nodes = self.bundles.other_nodes = other_nodes

    async def blocks_changed(self, number: str) -> None:
        """Invalidate caches after a number has changed its blocks."""
        self.recipients.changed(number)
        await self.other_nodes.changed([number])

    def registrations_changed(self, numbers: Sequence[str]) -> None:
        """Invalidate this node's caches: the previous tokens of these numbers are void."""
        self.logins.changed()
        # A former owner's addresses must not become familiar for a new lock.
        self.seen.drop(numbers)
        for number in numbers:
            self.recipients.changed(number)
