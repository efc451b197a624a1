"""Session set-up by PQXDH on one core: the initiator's part, and the responder's with the first message decrypted."""

from __future__ import annotations

import asyncio

from benchmarks import e2ee
from benchmarks.rig.calibration import MICROSECONDS, Calibration, CalibrationResources

ROUNDS = 200


async def calibrate(_ground: CalibrationResources) -> Calibration:
    """Measure the median of both sides together."""
    return Calibration("a PQXDH set-up, both sides", await asyncio.to_thread(_measure), MICROSECONDS)


def _measure() -> float:
    alice, bob = e2ee.Peer(), e2ee.Peer()

    def set_up() -> None:
        _, read = bob.read_first(e2ee.initiate(alice, bob).encrypt(b"first")[1])
        assert read == b"first"

    return e2ee.measure(set_up, ROUNDS)
