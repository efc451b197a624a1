"""Quotas: what one key and all keys together may hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidings.aio.quota import Quota, QuotaUsage


def test_each_key_has_a_bound_and_all_keys_have_one_together() -> None:
    quota = Quota(limit=100, each=60)
    assert quota.has_room(total=0, own=0, size=60)
    assert not quota.has_room(total=0, own=0, size=61)
    assert not quota.has_room(total=59, own=59, size=2)
    assert quota.has_room(total=60, own=0, size=40)
    assert not quota.has_room(total=60, own=0, size=41)


def test_with_a_fair_quota_one_key_gets_half_and_each_of_two_a_third() -> None:
    quota = Quota(limit=100, each=100, is_fair=True)

    def fill(*keys: str) -> list[int]:
        held = dict.fromkeys(keys, 0)
        while free := [key for key in keys if quota.has_room(sum(held.values()), held[key])]:
            for key in free:
                held[key] += quota.has_room(sum(held.values()), held[key])
        return [held[key] for key in keys]

    assert fill("a") == [50]
    assert sorted(fill("a", "b")) == [33, 34]


def test_a_key_that_holds_nothing_has_room_for_one_item_of_any_size() -> None:
    held, quota = QuotaUsage[str](), Quota(limit=100, each=10)
    assert held.has_room(quota, "a", 100)
    assert not held.has_room(quota, "a", 101)
    held.add("a", 60)
    assert not held.has_room(quota, "a", 1)
    assert held.has_room(quota, "b", 40)
    assert not held.has_room(quota, "b", 41)
    assert (held.of("a"), held.of("b"), held.total) == (60, 0, 60)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 900)), max_size=60))
def test_removed_items_leave_no_entry(added: list[tuple[str, int]]) -> None:
    held, quota, kept = QuotaUsage[str](), Quota(limit=4000, each=500), []
    for key, size in added:
        if held.has_room(quota, key, size):
            held.add(key, size)
            kept.append((key, size))
        assert held.total == sum(size for _, size in kept) <= 4000
    for key, size in kept:
        held.remove(key, size)
    assert (held.total, held._of) == (0, {})
