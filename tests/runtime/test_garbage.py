"""What collections of garbage look through, and that nothing is kept for good."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tidings.runtime.garbage import Survivors


class Plain:
    """An object in no cycle."""


class Knot(Plain):
    """An object in a cycle with itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def survivors() -> Iterator[Survivors]:
    was_enabled = gc.isenabled()
    gc.disable()
    found = Survivors(every=3)
    gc.callbacks.append(found.noticed)
    yield found
    gc.callbacks.remove(found.noticed)
    gc.unfreeze()
    if was_enabled:
        gc.enable()


@pytest.mark.usefixtures("survivors")
def test_what_a_collection_has_left_is_looked_through_again_by_every_so_manyth_only() -> None:
    knot = Knot()
    here = weakref.ref(knot)
    gc.collect()
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    del knot
    gc.collect()
    assert here() is not None
    gc.collect()
    assert here() is not None
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert here() is None
    assert gc.get_freeze_count() > 1000


@pytest.mark.usefixtures("survivors")
def test_what_is_new_is_collected_each_time_and_what_falls_out_of_use_needs_no_collection() -> None:
    plain = Plain()
    gc.collect()
    knot = Knot()
    here, plain_here = weakref.ref(knot), weakref.ref(plain)
    del plain
    assert plain_here() is None
    del knot
    gc.collect()
    assert here() is None


def test_collections_of_the_young_change_nothing(survivors: Survivors) -> None:
    before = gc.get_freeze_count()
    for generation in (0, 1):
        gc.collect(generation)
    survivors.noticed("start", {"generation": 2})
    assert gc.get_freeze_count() == before
