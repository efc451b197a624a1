"""How the Coreapp reaches «the servers»: one small protocol, so that another network than ours can take their place."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

from tidings import e2ee
from tidings.wire import device


@dataclasses.dataclass(frozen=True, slots=True)
class Envelope:
    """What is sent: kind as in `tidings.wire.device`, body the ciphertext, refs the ids that it is about or repeats.

    trace: the request id that goes with it; group: of a receipt, the group that its messages were sent to; epoch: of a
    group message, the group's as its sender knows it.
    """

    id: str
    to: str
    kind: str
    body: bytes = b""
    refs: tuple[str, ...] = ()
    trace: str = ""
    group: str = ""
    epoch: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Delivery:
    """What arrived. It comes again until it is acknowledged; timestamp: Unix milliseconds.

    receipt: what the upstream needs to acknowledge it; group: that it was sent to, or is about.
    """

    id: str
    sender: str
    kind: str
    timestamp: int
    body: bytes
    refs: Sequence[str]
    receipt: object
    trace: str = ""
    group: str = ""

    @property
    def message_id(self) -> str:
        """Of the message in it: its own id, or that of the message which it repeats."""
        return device.message_of(self.id, self.kind, self.refs)

    @property
    def is_repetition(self) -> bool:
        """Does it repeat a message that we asked for again?"""
        return self.message_id != self.id


class Upstream(Protocol):
    """The servers, as one account sees them."""

    @property
    def connected(self) -> bool:
        """Are we logged in?"""
        ...

    async def check_contacts(self, numbers: Sequence[str]) -> set[str]:
        """Those of the numbers that are registered; one call at a time. Raises `UpstreamAway`, `UpstreamRefused`."""
        ...

    async def fetch_bundles(self, numbers: Sequence[str]) -> Mapping[str, e2ee.PreKeyBundle]:
        """A pre-key bundle for each number that is registered. Raises `UpstreamAway`, `UpstreamRefused`."""
        ...

    def send(self, envelope: Envelope) -> None:
        """Put one envelope on the wire; the listener hears of its fate. Dropped while not connected."""
        ...

    def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """These are on our disk: the servers may forget them."""
        ...


class Listener(Protocol):
    """Who hears what the servers say. All are called on the event loop and must not block."""

    def connected(self) -> None:
        """Logged in: whatever was not accepted before must be sent again."""
        ...

    def accepted(self, ids: Sequence[str]) -> None:
        """These envelopes are safe with the servers."""
        ...

    def refused(self, envelope_id: str, reason: str, detail: str) -> None:
        """This envelope was not taken; reason as in `tidings.wire.device`."""
        ...

    def delivered(self, delivery: Delivery) -> None:
        """Something arrived for us."""
        ...

    def prekeys_low(self, remaining: int) -> None:
        """Few one-time pre-keys are left with the servers."""
        ...
