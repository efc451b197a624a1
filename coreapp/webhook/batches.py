"""Posts with several callbacks: which callbacks share one, and its id and body."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from coreapp.webhook import bodies
from coreapp.webhook.cloud import envelope
from tidings.storage.business.callbacks import CLOUD_ACCOUNT, Callback

MAX_BODY = 2_500_000  # bytes of the bodies of several callbacks

# Returns the `webhook-id` and the body of one post with these callbacks.
Join = Callable[[Sequence[Callback]], tuple[str, bytes]]


def join_statuses(callbacks: Sequence[Callback]) -> tuple[str, bytes]:
    """Join statuses of v1. The id is derived from those of the events, which the body names beside each status."""
    event_ids = [callback.event_id for callback in callbacks]
    digest = hashlib.blake2b(",".join(event_ids).encode(), digest_size=16).hexdigest()
    return f"batch_{digest}", bodies.joined([callback.body for callback in callbacks], event_ids)


def join_entries(callbacks: Sequence[Callback]) -> tuple[str, bytes]:
    """Join events of the Cloud API. The id lists the ids of the events."""
    event_ids = [callback.event_id for callback in callbacks]
    return ",".join(event_ids), envelope.joined([callback.body for callback in callbacks])


class Room:
    """Rest of a post after its first callback."""

    def __init__(self, first: Callback) -> None:
        self._group = _group_of(first)
        self._size = len(first.body)

    @property
    def is_closed(self) -> bool:
        """Return whether the first callback is posted alone."""
        return not self._group

    def admits(self, callback: Callback) -> bool:
        """Add a callback if it may share the post. Returns whether it may."""
        size = self._size + len(callback.body)
        if size > MAX_BODY or _group_of(callback) != self._group:
            return False
        self._size = size
        return True


def _group_of(callback: Callback) -> str:
    """Return the name of the callbacks that may share a post with this one; empty for none."""
    if callback.alone:
        return ""
    if callback.is_cloud:
        # Callbacks about accounts have another URL.
        return "accounts" if callback.kind == CLOUD_ACCOUNT else "messages"
    return "statuses" if bodies.is_status(callback.body) else ""
