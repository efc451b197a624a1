"""Speed of the processor at this moment, which other programs on the same core or host reduce."""

from __future__ import annotations

import gc
import json
import time

# CPU time of `_work` where the limits of `make test` were set, in seconds.
_REFERENCE = 0.05


def slowdown() -> float:
    """Return how many times as much CPU time work costs now as where limits were set; at least 1."""
    was_enabled = gc.isenabled()
    # A collection of everything that the tests of this process have left costs ten times as much as the work.
    gc.disable()
    try:
        begun = time.process_time()
        _work()
        return max(1.0, (time.process_time() - begun) / _REFERENCE)
    finally:
        if was_enabled:
            gc.enable()


def _work() -> None:
    """Perform a fixed amount of work whose data are larger than the caches of a core."""
    rows = [{"id": number, "text": str(number) * 4} for number in range(40_000)]
    rows = json.loads(json.dumps(rows))
    rows.sort(key=lambda row: str(row["text"])[::-1])
