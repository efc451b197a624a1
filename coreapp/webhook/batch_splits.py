"""Decision whether the callbacks of a refused post are posted alone, so that one bad callback does not hold up others.

A receiver that refuses everything, for example with 500, gets no more posts for that: after one split without an
accepted post, further batches stay together for `PAUSE`.
"""

from __future__ import annotations

import dataclasses
import math

PAUSE = 10.0  # seconds between two splits while no post is accepted
# Responses of a receiver, or of a proxy before it, that cannot handle any post now.
UNAVAILABLE = frozenset((408, 425, 429, 502, 503, 504))


def is_refusal(status: int | None) -> bool:
    """Return whether a receiver has refused a post, which may be the fault of one callback.

    status: HTTP status that does not accept the post; None without a response
    """
    return status is not None and status not in UNAVAILABLE


@dataclasses.dataclass(eq=False, slots=True)
class BatchSplits:
    """State of the decision for one webhook."""

    accepts: bool = True  # whether a post was accepted since the last split
    _split_at: float = dataclasses.field(default=-math.inf, init=False)  # seconds of the caller's clock

    def are_alone(self, status: int | None, *, size: int, was_alone: bool, now: float) -> bool:
        """Return whether the callbacks of a failed post are posted alone from now on.

        status: HTTP status; None without a response
        size: number of callbacks in the post
        was_alone: whether the single callback of a post was to be posted alone
        now: Unix seconds
        """
        if not is_refusal(status):
            return was_alone
        if size == 1:
            return self.accepts
        if not self.accepts and 0 <= now - self._split_at < PAUSE:
            return False
        self.accepts, self._split_at = False, now
        return True
