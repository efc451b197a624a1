"""A filter contains everything that was added to it, and little else."""

from __future__ import annotations

import random

from tidings.aio.bloom_filter import BloomFilter, RotatingFilter

DAY = 24 * 3600.0
MIB = 1024 * 1024


def digests(count: int, seed: int) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(32) for _ in range(count)]


def test_a_filter_contains_every_digest_that_was_added() -> None:
    added = digests(20_000, 1)
    found = BloomFilter(1 << 12)
    for digest in added:
        found.add(digest)
    assert all(digest in found for digest in added)


def test_after_two_days_at_80_keys_per_second_false_positives_stay_below_1_percent() -> None:
    # A 64th of the memory holds a 64th of 7,000,000 keys, in each generation.
    found = RotatingFilter(DAY, 0.0, bits=16 * MIB * 8 // 64)
    for moment, seed in ((0.0, 1), (DAY, 2)):
        for digest in digests(7_000_000 // 64, seed):
            found.add(digest, moment)
    assert found.memory == 2 * 16 * MIB // 64
    # A key is looked up when either of its two forms seems to be there.
    fresh = digests(40_000, 3)
    mistaken = sum(own in found or shared in found for own, shared in zip(fresh[::2], fresh[1::2], strict=True))
    assert mistaken < 200  # of 20,000


def test_a_filter_allocates_16_mib_with_its_first_digest() -> None:
    found = BloomFilter()
    assert found.memory == 0
    assert bytes(32) not in found
    found.add(bytes(32))
    assert found.memory == 16 * MIB


def test_a_digest_is_kept_for_a_day_and_dropped_within_three() -> None:
    first, *later = digests(5, 4)
    found = RotatingFilter(DAY, 0.0, bits=1 << 16)
    # The last moment of a generation: the next rotation comes a second later.
    found.add(first, DAY - 1)
    for digest, moment in zip(later, (DAY, DAY + 1, 2 * DAY - 1), strict=False):
        found.add(digest, moment)
        assert first in found
    found.add(later[3], 2 * DAY)
    assert first not in found
    assert later[0] in found


def test_a_digest_is_kept_when_the_clock_is_set_back() -> None:
    first, second = digests(2, 5)
    found = RotatingFilter(DAY, 10 * DAY, bits=1 << 16)
    found.add(first, 10 * DAY)
    found.add(second, 0.0)
    assert first in found
    assert second in found
