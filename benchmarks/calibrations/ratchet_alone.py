"""The message of `ratchet`, one every 4 ms: what is done now and then finds caches that others have filled.

What few clients ask for is done like this, what many ask for in rows.
"""

from __future__ import annotations

import asyncio

from benchmarks import e2ee
from benchmarks.calibrations import ratchet
from benchmarks.rig.calibration import MICROSECONDS, Calibration, Ground

PAUSE = 0.004
ROUNDS = 300


async def calibrate(_ground: Ground) -> Calibration:
    """The median of both sides together, without the pauses."""
    took = await asyncio.to_thread(e2ee.measure, ratchet.both_sides(), ROUNDS, PAUSE)
    return Calibration("a Double Ratchet message, one every 4 ms", took, MICROSECONDS)
