"""Double Ratchet message of 100 B, encrypted by one side and decrypted by the other, on one core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from benchmarks import e2ee
from benchmarks.rig.calibration import MICROSECONDS, Calibration, CalibrationResources

SIZE, ROUNDS = 100, 1000


async def calibrate(_ground: CalibrationResources) -> Calibration:
    """Measure the median of both sides together, in a tight loop."""
    message = both_sides()
    took = await asyncio.to_thread(e2ee.measure, message, ROUNDS)
    return Calibration("a Double Ratchet message, both sides", took, MICROSECONDS)


def both_sides() -> Callable[[], None]:
    """Return a function that encrypts one message and decrypts it at the other side."""
    alice, bob = e2ee.Peer(), e2ee.Peer()
    alices, plaintext = e2ee.initiate(alice, bob), bytes(SIZE)
    bobs, _ = bob.read_first(alices.encrypt(plaintext)[1])
    # Each side has received a message of the other, so the session is established.
    alices.decrypt(*bobs.encrypt(plaintext))
    bobs.decrypt(*alices.encrypt(plaintext))

    def message() -> None:
        assert bobs.decrypt(*alices.encrypt(plaintext)) == plaintext

    return message
