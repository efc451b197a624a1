"""Work that a message asks for before it has authenticated, in steps of a chain: 3 to 4 µs each.

What nearly every message needs is free. Before more is done, the receiver's `Spend` is asked; where it refuses, the
message raises OverBudget and nothing has been spent on it.
"""

from collections.abc import Callable
from typing import Final

FREE_STEPS: Final = 32  # of each chain: messages that are missing before this one
ARCHIVED_STEPS: Final = 50  # to try one archived session: an agreement of keys, and to decode it
SETUP_STEPS: Final = 250  # to set up a session: four agreements and a decapsulation

# (steps) -> may they be taken? They count as taken then.
Spend = Callable[[int], bool]


def unlimited(_steps: int) -> bool:
    """Of receivers whose peers may cost what they like, within the limits of one message."""
    return True
