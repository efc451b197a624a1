"""Pinned entries stay. Others are evicted beyond the limit, the least recently used first."""

from __future__ import annotations

from collections import Counter, OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from tidings.aio import lru


class Note(lru.Entry):
    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = ""

    def is_known(self) -> bool:
        return bool(self.text)


def written(cache: lru.PinnedCache[str, Note], key: str, text: str) -> None:
    cache.pin(key)
    cache.pinned[key].text = text
    cache.unpin(key)


def test_a_pinned_entry_is_never_evicted() -> None:
    cache: lru.PinnedCache[str, Note] = lru.PinnedCache(Note, 1)
    cache.pin("a")
    cache.pinned["a"].text = "kept"
    for key in "bcd":
        written(cache, key, "another")
    assert [(note := cache.get(key)) and note.text for key in "abcd"] == ["kept", None, None, "another"]


def test_an_entry_stays_until_its_last_pin_is_removed() -> None:
    cache: lru.PinnedCache[str, Note] = lru.PinnedCache(Note, 0)
    cache.pin("aab")
    note = cache.pinned["a"]
    note.text = "kept"
    cache.unpin("ab")
    assert cache.get("a") is note
    cache.unpin("a")
    assert cache.get("a") is None
    assert not cache.pinned


def test_an_empty_entry_evicts_no_other() -> None:
    cache: lru.PinnedCache[str, Note] = lru.PinnedCache(Note, 1)
    written(cache, "a", "known")
    written(cache, "b", "")
    assert cache.get("a") is not None
    assert cache.get("b") is None


def test_clear_removes_only_unpinned_entries() -> None:
    cache: lru.PinnedCache[str, Note] = lru.PinnedCache(Note, 9)
    written(cache, "a", "one")
    cache.pin("b")
    cache.pinned["b"].text = "two"
    cache.clear()
    assert cache.get("a") is None
    assert cache.pinned["b"].text == "two"


@given(
    st.integers(0, 4), st.lists(st.tuples(st.sampled_from(["pin", "unpin", "write", "get"]), st.sampled_from("abcdef")))
)
def test_the_cache_behaves_like_a_dict_and_counter_model(limit: int, steps: list[tuple[str, str]]) -> None:
    cache: lru.PinnedCache[str, Note] = lru.PinnedCache(Note, limit)
    pins: Counter[str] = Counter()
    texts: dict[str, str] = {}
    others: OrderedDict[str, None] = OrderedDict()
    for number, (step, key) in enumerate(steps, 1):
        if step == "pin":
            cache.pin([key])
            pins[key] += 1
            others.pop(key, None)
        elif step == "unpin" and pins[key]:
            cache.unpin([key])
            pins[key] -= 1
            if not pins[key] and key in texts:
                others[key] = None
                if len(others) > limit:
                    del texts[others.popitem(last=False)[0]]
        elif step == "write" and pins[key]:
            cache.pinned[key].text = texts[key] = str(number)
        elif step == "get":
            note = cache.get(key)
            assert (note.text if note else "") == texts.get(key, "")
            if key in others:
                others.move_to_end(key)
        assert {key for key, count in pins.items() if count} == set(cache.pinned)
