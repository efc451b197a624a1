"""A message of 100 B through the Double Ratchet, encrypted by one side and decrypted by the other, on one core."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from benchmarks import e2ee
from benchmarks.rig.calibration import MICROSECONDS, Calibration, Ground

SIZE, ROUNDS = 100, 1000


async def calibrate(_ground: Ground) -> Calibration:
    """The median of both sides together, one after the other."""
    message = both_sides()
    took = await asyncio.to_thread(e2ee.measure, message, ROUNDS)
    return Calibration("a Double Ratchet message, both sides", took, MICROSECONDS)


def both_sides() -> Callable[[], None]:
    """What one encrypts and the other decrypts, once in each call."""
    alice, bob = e2ee.Peer(), e2ee.Peer()
    alices, plaintext = e2ee.initiate(alice, bob), bytes(SIZE)
    bobs, _ = bob.read_first(alices.encrypt(plaintext)[1])
    # Settled: each has answered the other.
    alices.decrypt(*bobs.encrypt(plaintext))
    bobs.decrypt(*alices.encrypt(plaintext))

    def message() -> None:
        assert bobs.decrypt(*alices.encrypt(plaintext)) == plaintext

    return message
