"""Changes merge into one write per kind of row, in the order of the fields, according to their policies."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, cast

import pytest

from tidings.storage import merging
from tidings.storage.database import Connection

written: list[tuple[str, Any]] = []
Pair = tuple[str, int]


async def append(connection: Connection, found: Sequence[Pair]) -> None:
    written.append(("append", found))


async def last(connection: Connection, found: Sequence[Pair]) -> None:
    written.append(("last", found))


async def highest(connection: Connection, found: Sequence[Pair]) -> None:
    written.append(("highest", found))


async def by_account(connection: Connection, account: str, found: Sequence[int]) -> None:
    written.append((f"by_account of {account}", found))


async def values(connection: Connection, found: Mapping[str, int]) -> None:
    written.append(("values", found))


async def lists(connection: Connection, account: str, found: Mapping[str, Sequence[int]]) -> None:
    written.append((f"lists of {account}", found))


async def inner(connection: Connection, found: Sequence[Any]) -> None:
    written.append(("inner", found))


class Family:
    """Rows to save, and rows to delete before that."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.saved: set[str] = set()
        self.dropped: set[str] = set()
        for change in changes:
            self.saved -= set(change.dropped)
            self.dropped |= set(change.dropped)
            self.saved |= set(change.saved)

    def __bool__(self) -> bool:
        return bool(self.saved or self.dropped)

    async def write(self, connection: Connection) -> None:
        written.append(("family", (sorted(self.dropped), sorted(self.saved))))


@merging.change_class
class Change:
    account: str
    _: dataclasses.KW_ONLY
    append: Sequence[Pair] = merging.rows(append, about="jobs")
    last: Sequence[Pair] = merging.rows(last, key=itemgetter(0))
    dropped: Sequence[str] = merging.part_of(Family, about="keys")
    highest: Sequence[Pair] = merging.rows(highest, key=itemgetter(0), rank=itemgetter(1))
    saved: Sequence[str] = merging.part_of(Family)
    by_account: Sequence[int] = merging.rows_by_account(by_account)
    values: Mapping[str, int] | None = merging.mapping(values, combine=max)
    lists: Mapping[str, Sequence[int]] | None = merging.mapping_by_account(lists, combine=merging.joined)
    inner: str | None = merging.nested(inner)


merger = merging.Merger(Change)


async def write(*changes: Change) -> list[tuple[str, Any]]:
    written.clear()
    await merger.merge(changes).write(cast(Connection, None))
    return written


async def test_rows_are_merged_in_order_by_last_key_or_by_highest_rank() -> None:
    first, second = [("a", 1), ("b", 2)], [("b", 1), ("a", 3)]
    assert await write(
        Change("x", append=first, last=first, highest=first), Change("y", append=second, last=second, highest=second)
    ) == [
        ("append", [*first, *second]),
        ("last", [("a", 3), ("b", 1)]),
        ("highest", [("a", 3), ("b", 2)]),
    ]


async def test_the_first_row_of_equal_rank_is_kept() -> None:
    rows = [("a", 1.0), ("a", 1)]
    ((_, found),) = await write(Change("x", highest=cast(Any, rows)))
    assert repr(found) == "[('a', 1.0)]"


async def test_mappings_combine_by_key() -> None:
    changes = [Change("x", values={"a": 2, "b": 1}), Change("x"), Change("x", values={"a": 1, "c": 1})]
    assert await write(*changes) == [("values", {"a": 2, "b": 1, "c": 1})]


async def test_each_account_has_its_own_write() -> None:
    changes = [
        Change("x", by_account=[1], lists={"a": [1]}),
        Change("y", by_account=[2]),
        Change("x", by_account=[3], lists={"a": [2], "b": [3]}),
    ]
    assert await write(*changes) == [
        ("by_account of x", [1, 3]),
        ("by_account of y", [2]),
        ("lists of x", {"a": [1, 2], "b": [3]}),
    ]


async def test_a_family_merges_its_fields_and_is_written_once_at_its_first_position() -> None:
    changes = [Change("x", saved=["a", "b"]), Change("x", dropped=["a"], highest=[("h", 1)])]
    assert await write(*changes) == [("family", (["a"], ["b"])), ("highest", [("h", 1)])]
    assert merger.merge(changes).part(Family).saved == {"b"}


async def test_nested_changes_are_passed_on_unmerged() -> None:
    assert await write(Change("x", inner="one"), Change("x"), Change("x", inner="two")) == [("inner", ["one", "two"])]


async def test_kinds_without_rows_are_not_written() -> None:
    assert await write(Change("x"), Change("y", append=[], values={})) == []


def test_a_batch_is_labelled_by_the_kind_of_its_rows() -> None:
    assert merger.merge([Change("x", append=[("a", 1)])]).about == "jobs"
    assert merger.merge([Change("x", saved=["a"])]).about == "keys"
    assert merger.merge([Change("x", append=[("a", 1)]), Change("x", saved=["a"])]).about == "messages"
    assert merger.merge([Change("x")]).about == "messages"


async def test_a_change_stores_the_fields_that_it_was_given_and_has_the_defaults_of_the_others() -> None:
    change = Change("x", append=[("a", 1)])
    assert vars(change) == {"account": "x", "append": [("a", 1)]}
    assert (change.last, change.values) == ((), None)
    assert change == Change("x", append=[("a", 1)])
    assert change != Change("y", append=[("a", 1)])


async def test_a_row_of_an_unknown_kind_is_refused() -> None:
    rows: dict[str, Any] = {"appended": [("a", 1)], "added": []}
    with pytest.raises(TypeError, match="Change has no added, appended"):
        Change("x", **rows)
