"""Message of `ratchet` once every 4 ms, with CPU caches that other programs have filled in between.

Requests of few clients are processed like this, those of many in a tight loop.
"""

from __future__ import annotations

import asyncio

from benchmarks import e2ee
from benchmarks.calibrations import ratchet
from benchmarks.rig.calibration import MICROSECONDS, Calibration, CalibrationResources

PAUSE = 0.004  # seconds
ROUNDS = 300


async def calibrate(_ground: CalibrationResources) -> Calibration:
    """Measure the median of both sides together, without the pauses."""
    took = await asyncio.to_thread(e2ee.measure, ratchet.both_sides(), ROUNDS, PAUSE)
    return Calibration("a Double Ratchet message, one every 4 ms", took, MICROSECONDS)
