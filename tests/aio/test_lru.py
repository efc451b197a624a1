"""The cache holds the most recently used entries, and no more than its limit."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from tidings.aio.lru import LRU


def test_the_least_recently_used_entry_is_evicted_first() -> None:
    cache: LRU[str, int] = LRU(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert list(cache) == ["a", "c"]
    assert cache.get("b") is None


def test_drop_and_clear_remove_entries() -> None:
    cache: LRU[str, int] = LRU(5)
    cache.put("a", 1)
    cache.put("b", 2)
    cache.pop("a")
    cache.pop("never there")
    assert "a" not in cache
    cache.clear()
    assert len(cache) == 0


@given(st.integers(0, 5), st.lists(st.tuples(st.sampled_from(["get", "put", "drop"]), st.integers(0, 8)), max_size=80))
def test_the_cache_behaves_like_an_ordered_dict_model(limit: int, steps: list[tuple[str, int]]) -> None:
    cache: LRU[int, int] = LRU(limit)
    model: OrderedDict[int, int] = OrderedDict()
    for number, (step, key) in enumerate(steps, 1):
        if step == "put":
            cache.put(key, number)
            model.pop(key, None)
            model[key] = number
            while len(model) > limit:
                model.popitem(last=False)
        elif step == "get":
            assert cache.get(key) == model.get(key)
            if key in model:
                model.move_to_end(key)
        else:
            cache.pop(key)
            model.pop(key, None)
        assert list(cache) == list(model)
        assert len(cache) <= limit
