"""What a mailroom takes: deliveries, and messages of our own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from handset.devices.device import Device
from handset.groups.groups import StoreWork
from tidings import e2ee
from tidings.wire import device as wire


class Acknowledging(Protocol):
    """Where deliveries come from."""

    def acknowledge(self, deliveries: Sequence[wire.Deliver]) -> None:
        """They are on disk; what came on a connection that is gone comes again."""
        ...


@dataclasses.dataclass(slots=True, eq=False)
class Arrival:
    """One delivery; acknowledged at its origin as soon as what it says is on disk."""

    origin: Acknowledging
    device: Device
    frame: wire.Deliver
    attempt: int = 1


@dataclasses.dataclass(slots=True, eq=False)
class Outgoing:
    """One message of our own. Without a session and without a bundle it is not sent, and its result is `None`.

    anew: set a session up from the bundle even though there is one; what waits for that goes out behind it.
    kept: can it be asked for again?
    """

    device: Device
    peer: str
    plaintext: bytes
    bundle: e2ee.PreKeyBundle | None = None
    anew: bool = False
    kept: bool = True


@dataclasses.dataclass(slots=True, eq=False)
class Step:
    """Work on groups that is carried out within the transaction, in its turn."""

    work: StoreWork
