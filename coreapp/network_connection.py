"""The Coreapp's access to the message network: one small protocol, so that another network can replace ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from tidings import e2ee
from tidings.wire import device


class NetworkConnection(Protocol):
    """The network as one account uses it, in frames of the device API."""

    @property
    def connected(self) -> bool:
        """Whether the device is logged in."""
        ...

    @property
    def silence(self) -> float:
        """Seconds since data last arrived from the network; 0 without a connection."""
        ...

    async def check_contacts(self, numbers: Sequence[str]) -> set[str]:
        """Return those of the numbers that are registered. One call at a time. Raises `NetworkUnavailable`,
        `NetworkRefusal`.
        """
        ...

    async def fetch_bundles(self, numbers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """Return a pre-key bundle for each number that is registered. Raises `NetworkUnavailable`, `NetworkRefusal`."""
        ...

    def send(self, envelope: device.Send) -> None:
        """Send one envelope. The listener is notified of its outcome by the envelope's id. Dropped while disconnected.
        The implementation assigns the frame's number `n`.
        """
        ...

    def acknowledge(self, deliveries: Iterable[device.Deliver]) -> None:
        """Acknowledge deliveries that are on our disk, so that the network may delete them."""
        ...


class SendListener(Protocol):
    """Receiver of the outcomes of sends. All methods are called on the event loop and must not block."""

    def connected(self) -> None:
        """Called after each login: envelopes that were not accepted before must be sent again."""
        ...

    def accepted(self, envelope_ids: Sequence[str]) -> None:
        """Called when the network has stored these envelopes."""
        ...

    def refused(self, envelope_id: str, reason: str, detail: str) -> None:
        """Called when an envelope was not accepted.

        reason: as in `tidings.wire.device`
        """
        ...

    def held_back(self, envelope_id: str) -> None:
        """Called when the network accepts no more for this envelope's recipient for now. The connection resends it."""
        ...


class DeliveryListener(Protocol):
    """Receiver of deliveries. Called on the event loop, and must not block."""

    def delivered(self, delivery: device.Deliver) -> None:
        """Called for each delivery. A delivery is repeated until it is acknowledged."""
        ...
