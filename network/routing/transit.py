"""One envelope on its way through the network, from its arrival to the acknowledgement of its recipient."""

from __future__ import annotations

from typing import Protocol

import msgspec

from network.routing.delivery_queue import DeliveryQueue
from tidings.storage.network import mailbox
from tidings.wire import device

# Bytes that a delivery counts for beside its body: about what the rest of its frame takes, ...
_FRAME = 256
# ... and each character of `refs`, of which there may be 64,000: it takes up to 6 in JSON.
_REF_CHARACTER = 4

# States of a `Transit`: WAITING → STORING → STORED, and back to WAITING when the database refuses the row of one that
# is with its device.
WAITING = 0  # only in memory
STORING = 1  # on its way to the database
STORED = 2  # committed in the database


class Origin(Protocol):
    """Whoever sent an envelope: it hears what became of it."""

    def accepted(self, n: int) -> None: ...

    def refused(self, n: int, reason: str, detail: str = "") -> None: ...


class Transit(msgspec.Struct, eq=False):
    """An envelope in memory. It is decided when its sender has been told, so when it is stored or acknowledged.

    size:    bytes that it counts for while it is in flight: over half of those that it takes on any transport.
    frame:   what its recipient gets; the body is dropped as soon as nobody here needs it again.
    due:     monotonic seconds at which it is stored if it is still undecided.
    origin:  the connection that sent it last, `None` when nobody waits for the decision.
    n:       the number under which that connection sent it.
    counted: it is one of those that its queue waits for the storing of.
    """

    seq: int
    frame: device.Deliver
    queue: DeliveryQueue
    expires_at: int
    size: int
    due: float = 0.0
    origin: Origin | None = None
    n: int = 0
    state: int = WAITING
    in_flight: bool = False
    acked: bool = False
    counted: bool = False

    def row(self) -> mailbox.Envelope:
        """As it is stored."""
        frame = self.frame
        return mailbox.Envelope(
            seq=self.seq,
            recipient=frame.to,
            sender=frame.sender,
            id=frame.id,
            kind=frame.kind,
            timestamp=frame.timestamp,
            expires_at=self.expires_at,
            body=frame.body,
            refs=frame.refs,
            trace=frame.trace,
            group=frame.group,
        )


def from_send(
    origin: Origin, frame: device.Send, queue: DeliveryQueue, *, seq: int, now: int, ttl: int, due: float
) -> Transit:
    """An envelope that its sender has just given us. now: Unix milliseconds; ttl: seconds."""
    return Transit(
        seq=seq,
        frame=device.Deliver(
            n=0,
            to=frame.to,
            sender=frame.sender,
            id=frame.id,
            kind=frame.kind,
            timestamp=now,
            body=frame.body,
            refs=frame.refs,
            trace=frame.trace,
            group=frame.group,
        ),
        queue=queue,
        expires_at=now + ttl * 1000,
        size=_size(frame.body, frame.refs),
        due=due,
        origin=origin,
        n=frame.n,
    )


def from_row(row: mailbox.Envelope, queue: DeliveryQueue) -> Transit:
    """An envelope that comes out of the mailbox."""
    frame = device.Deliver(
        n=0,
        to=row.recipient,
        sender=row.sender,
        id=row.id,
        kind=row.kind,
        timestamp=row.timestamp,
        body=row.body,
        refs=row.refs,
        trace=row.trace,
        group=row.group,
    )
    return Transit(
        seq=row.seq, frame=frame, queue=queue, expires_at=row.expires_at, size=_size(row.body, row.refs), state=STORED
    )


def _size(body: bytes, refs: list[str]) -> int:
    size = _FRAME + len(body)
    return size + _REF_CHARACTER * (len(refs) + sum(map(len, refs))) if refs else size
