"""Budget for work that a message causes before it has authenticated, in steps of a chain: 3 to 4 µs each.

Work that nearly every message needs is free. Before further work the receiver's `Spend` is called; when it refuses, the
message raises OverBudget and no work has been done.
"""

from collections.abc import Callable
from typing import Final

FREE_STEPS: Final = 32  # per chain: messages missing before this one
ARCHIVED_STEPS: Final = 50  # cost of trying one archived session: a key agreement, and decoding
SETUP_STEPS: Final = 250  # cost of a session set-up: four key agreements and a decapsulation

# (steps) -> whether they may be taken; they are then consumed.
Spend = Callable[[int], bool]


def unlimited(_steps: int) -> bool:
    """Allow all steps: for receivers without a budget per peer. The limits of one message still apply."""
    return True
