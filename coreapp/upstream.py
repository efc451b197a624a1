"""How the Coreapp reaches «the servers»: one small protocol, so that another network than ours can take their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidings import e2ee
from tidings.wire import device


class Upstream(Protocol):
    """The servers, as one account sees them. It speaks in the frames of the device API."""

    connected: bool  # are we logged in?

    @property
    def silence(self) -> float:
        """Seconds since the servers have said anything on a connection that stands."""
        ...

    async def check_contacts(self, numbers: Sequence[str]) -> set[str]:
        """Those of the numbers that are registered; one call at a time. Raises `NetworkAway`, `NetworkRefusal`."""
        ...

    async def fetch_bundles(self, numbers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """A pre-key bundle for each number that is registered. Raises `NetworkAway`, `NetworkRefusal`."""
        ...

    def send(self, envelope: device.Send) -> None:
        """Put one envelope on the wire; the listener hears of its fate by its id. Dropped while not connected.

        Its number `n` is the upstream's own.
        """
        ...

    def acknowledge(self, deliveries: Iterable[device.Deliver]) -> None:
        """These are on our disk: the servers may forget them."""
        ...


class SendListener(Protocol):
    """Who hears what becomes of what is sent. All are called on the event loop and must not block."""

    def connected(self) -> None:
        """Logged in: whatever was not accepted before must be sent again."""
        ...

    def accepted(self, envelope_ids: Sequence[str]) -> None:
        """These envelopes are safe with the servers."""
        ...

    def refused(self, envelope_id: str, reason: str, detail: str) -> None:
        """This envelope was not accepted; reason as in `tidings.wire.device`."""
        ...

    def held_back(self, envelope_id: str) -> None:
        """The servers take no more for this one's recipient for now: the upstream sends it again by itself."""
        ...


class DeliveryListener(Protocol):
    """Who hears what arrives. Called on the event loop, and must not block."""

    def delivered(self, delivery: device.Deliver) -> None:
        """Something arrived for us. It comes again until it is acknowledged."""
        ...
