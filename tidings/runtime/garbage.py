"""What the garbage collector looks through: what is new, and everything now and then."""

from __future__ import annotations

import gc
from collections.abc import Mapping

# More new objects than there were, after which these are looked through, and how often what is left of them is. Where
# many requests come and go their number swings by ten thousands, and almost none are in cycles: each look is in vain.
THRESHOLDS = (50_000, 5, 20)
# Collections of the oldest generation of which one looks through everything.
EVERYTHING = 10


class Survivors:
    """Objects that a collection of the oldest generation has left: the next ones pass them by, but for every tenth.

    With ten thousand connections there are a million of them, almost all of which stay, and looking through them stops
    the process for a quarter of a second. Those that fall out of use are freed as ever, unless they are in a cycle:
    these wait for the tenth.
    """

    def __init__(self, every: int = EVERYTHING) -> None:
        self._every = every
        self._collections = 0

    def noticed(self, phase: str, info: Mapping[str, int]) -> None:
        """A collection starts or stops, as `gc.callbacks` say."""
        if phase != "stop" or info["generation"] != len(THRESHOLDS) - 1:
            return
        self._collections += 1
        if self._collections % self._every:
            gc.freeze()
        else:
            gc.unfreeze()


def settle() -> None:
    """What was made so far stays: looking through it again would cost a busy process a fifth of its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.callbacks.append(Survivors().noticed)
