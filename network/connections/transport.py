"""What sessions need of the carrier of their frames."""

from __future__ import annotations

from typing import Protocol

import msgspec


class Transport(Protocol):
    """Carrier of one connection's frames. Sending never waits; a reader that is too slow is disconnected."""

    @property
    def peer(self) -> str: ...

    @property
    def host(self) -> str:
        """Address of the peer."""
        ...

    @property
    def is_open(self) -> bool: ...

    @property
    def is_held(self) -> bool:
        """Is it we who do not read on?"""
        ...

    @property
    def last_received(self) -> float:
        """Loop time of the last data from the peer."""
        ...

    def send(self, frame: msgspec.Struct) -> None:
        """Queue one frame; dropped when the connection is closed."""
        ...

    def limit(self, *, frame: int, unread: int) -> None:
        """Bytes of a frame that may come, and bytes unread by the peer at which nothing more is read from it."""
        ...

    def pause(self, why: int) -> None:
        """Read nothing more until `resume` for the same reason."""
        ...

    def resume(self, why: int) -> None:
        """Read on, if there is no other reason not to."""
        ...

    def check_reader(self, now: float) -> None:
        """Cut a peer that has not read anything for too long while much waits for it."""
        ...

    def close(self, reason: str) -> None:
        """Send what is queued, then close."""
        ...

    def abort(self, reason: str) -> None:
        """Close at once."""
        ...
