"""Envelopes that the network itself makes, stored in the transaction that gives the reason for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from network.router import Router
from tidings.runtime.clock import Clock
from tidings.storage import mailbox
from tidings.storage.database import Connection

# (kind, the number it comes from, the number it goes to, refs)
Notice = tuple[str, str, str, list[str]]


class Reservations:
    """The lanes that wait for one transaction."""

    def __init__(self, router: Router, clock: Clock, ttl: int) -> None:
        self._router = router
        self._clock = clock
        self._ttl = ttl
        self.reserved: list[tuple[str, int]] = []

    async def store(self, connection: Connection, notices: Sequence[Notice]) -> None:
        """Write notices; they are delivered when the transaction has committed."""
        now = int(self._clock.now() * 1000)
        rows = []
        for kind, sender, recipient, refs in notices:
            seq = self._router.reserve(recipient)
            self.reserved.append((recipient, seq))
            rows.append(
                mailbox.Envelope(
                    seq=seq,
                    recipient=recipient,
                    sender=sender,
                    id=f"{kind}.{seq}",
                    kind=kind,
                    timestamp=now,
                    expires_at=now + self._ttl * 1000,
                    body=b"",
                    refs=refs,
                )
            )
        await mailbox.insert(connection, rows)


class Notices:
    """Keeps the order of a mailbox right while something is stored in it from outside the router."""

    def __init__(self, router: Router, clock: Clock, ttl: int) -> None:
        self._router = router
        self._clock = clock
        self._ttl = ttl

    @contextlib.contextmanager
    def reservations(self) -> Iterator[Reservations]:
        """Open this around the transaction, so that it closes after the commit (or the failure)."""
        reservations = Reservations(self._router, self._clock, self._ttl)
        try:
            yield reservations
        finally:
            for number, seq in reservations.reserved:
                self._router.release(number, seq)
