"""Transport as sessions need it."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Transport(Protocol):
    """Transport of one connection's frames. Sending never waits; a reader that is too slow is disconnected."""

    @property
    def peer(self) -> str: ...

    @property
    def host(self) -> str:
        """Return the address of the peer."""
        ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_held(self) -> bool:
        """Return whether reading from the peer is paused on this side."""
        ...

    @property
    def last_received(self) -> float:
        """Return the loop time of the last data from the peer."""
        ...

    def send(self, frame: msgspec.Struct) -> None:
        """Queue one frame; it is dropped when the connection is closed."""
        ...

    def limit(self, *, frame: int, unread: int) -> None:
        """Set limits of the peer.

        frame: largest frame that it may send, bytes.
        unread: bytes not read by it at which reading from it stops.
        """
        ...

    def pause(self, why: int) -> None:
        """Stop reading until `resume` is called for the same reason."""
        ...

    def resume(self, why: int) -> None:
        """Continue reading, unless it is paused for another reason."""
        ...

    def check_reader(self, now: float) -> None:
        """Abort if a peer with much data queued has read nothing for too long."""
        ...

    def close(self, reason: str) -> None:
        """Send queued frames, then close."""
        ...

    def abort(self, reason: str) -> None:
        """Close at once."""
        ...
