"""Merging of many changes into one write per kind of row.

A class of changes, decorated with `change_class`, has an `account` and one field per kind of row. Each field is made by
one of the functions below, which takes the writer and states how several changes merge. Rows are written in field
order.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar, dataclass_transform

from tidings.storage.database import Connection, Subject

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
PartOf = TypeVar("PartOf", bound="Family")


class Family(Protocol):
    """Group of row kinds that depend on each other, such as rows that are saved and rows that are deleted.

    It is made of the changes that have any of its rows. An instance is false while it has nothing to write.
    """

    def __init__(self, changes: Sequence[Any], /) -> None: ...

    def __bool__(self) -> bool: ...

    async def write(self, connection: Connection, /) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    # Merges changes with such rows into what is written; returns a false value for nothing. Its first argument is the
    # getter of the field.
    merge: Callable[[Callable[[Any], Any], Sequence[Any]], Any]
    write: Callable[[Connection, Any], Awaitable[None]]
    about: Subject = "messages"
    # None for a kind that depends on no other.
    family: type[Family] | None = None


@dataclass_transform()
def change_class(changes: type[Row]) -> type[Row]:
    """Make a class a dataclass of which an instance stores only the fields that it was given. A change has few of some
    forty fields, and a message several changes. A function as a default must be a `staticmethod`.
    """

    def __init__(self: Row, account: str, **given: Any) -> None:
        if not given.keys() <= names:
            raise TypeError(f"{changes.__name__} has no {', '.join(sorted(given.keys() - names))}")
        self.__dict__.update(given, account=account)

    made = dataclasses.dataclass(init=False)(changes)
    names = made.__dataclass_fields__.keys()  # type: ignore[attr-defined]
    made.__init__ = __init__  # type: ignore[method-assign, assignment]
    return made


def rows(
    write: Callable[[Connection, Sequence[Row]], Awaitable[None]],
    *,
    key: Callable[[Row], Hashable] | None = None,
    rank: Callable[[Row], int] | None = None,
    about: Subject = "messages",
) -> Sequence[Row]:
    """Return a field that collects all rows in their order.

    key: keep one row per key: the last one, or the first one of the highest `rank`; None to keep all rows
    """

    def merge(get: Callable[[Any], Any], changes: Sequence[Any]) -> Sequence[Row]:
        found = itertools.chain.from_iterable(map(get, changes))
        if key is None:
            return list(found)
        merged: dict[Hashable, Row] = {}
        for row in found:
            if rank is None or (known := merged.get(key(row))) is None or rank(known) < rank(row):
                merged[key(row)] = row
        return list(merged.values())

    return _field((), _Kind(merge, write, about))


def rows_by_account(
    write: Callable[[Connection, str, Sequence[Row]], Awaitable[None]], *, about: Subject = "messages"
) -> Sequence[Row]:
    """Return a field that collects all rows in their order, with one write per account."""

    def merge(get: Callable[[Any], Any], changes: Sequence[Any]) -> Mapping[str, Sequence[Row]]:
        merged: dict[str, list[Row]] = {}
        for change in changes:
            merged.setdefault(change.account, []).extend(get(change))
        return merged

    return _field((), _Kind(merge, _for_each_account(write), about))


def mapping(
    write: Callable[[Connection, Mapping[Key, Value]], Awaitable[None]],
    *,
    combine: Callable[[Value, Value], Value] | None = None,
) -> Mapping[Key, Value] | None:
    """Return a field that keeps one value per key: the last one, or `combine(known, next)`."""

    def merge(get: Callable[[Any], Any], changes: Sequence[Any]) -> Mapping[Key, Value]:
        merged: dict[Key, Value] = {}
        for found in map(get, changes):
            _update(merged, found, combine)
        return merged

    return _field(None, _Kind(merge, write))


def mapping_by_account(
    write: Callable[[Connection, str, Mapping[Key, Value]], Awaitable[None]],
    *,
    combine: Callable[[Value, Value], Value] | None = None,
) -> Mapping[Key, Value] | None:
    """Return a field that keeps one value per key as `mapping` does, with one write per account."""

    def merge(get: Callable[[Any], Any], changes: Sequence[Any]) -> Mapping[str, Mapping[Key, Value]]:
        merged: dict[str, dict[Key, Value]] = {}
        for change in changes:
            _update(merged.setdefault(change.account, {}), get(change), combine)
        return merged

    return _field(None, _Kind(merge, _for_each_account(write)))


def joined(known: Sequence[Row], more: Sequence[Row]) -> Sequence[Row]:
    """Return `known` followed by `more`; for use as `combine`."""
    return [*known, *more]


def nested(write: Callable[[Connection, Sequence[Row]], Awaitable[None]], *, about: Subject = "messages") -> Row | None:
    """Return a field for nested changes that `write` merges itself."""
    return _field(None, _Kind(lambda get, changes: list(map(get, changes)), write, about))


def part_of(family: type[Family], default: Any = (), *, about: Subject = "messages") -> Any:
    """Return a field whose rows `family` merges and writes, at the position of the family's first field."""
    return _field(
        default,
        _Kind(lambda _, changes: family(changes), lambda connection, merged: merged.write(connection), about, family),
    )


def _field(default: Value, kind: _Kind) -> Value:
    return dataclasses.field(default=default, metadata={"kind": kind})


def _for_each_account(write: Callable[[Connection, str, Any], Awaitable[None]]) -> Any:
    async def write_each(connection: Connection, merged: Mapping[str, Any]) -> None:
        # Transactions of other processes lock the rows of several accounts in the same order.
        for account in sorted(merged):
            await write(connection, account, merged[account])

    return write_each


def _update(
    merged: dict[Key, Value], found: Mapping[Key, Value], combine: Callable[[Value, Value], Value] | None
) -> None:
    if combine is None:
        merged.update(found)
        return
    for key, value in found.items():
        merged[key] = combine(merged[key], value) if key in merged else value


class Merger:
    """Row kinds of one class of changes, in the order of their writes."""

    def __init__(self, changes: type) -> None:
        # Each kind with the getter of its field; for a family, of its first one.
        self._kinds: list[tuple[Callable[[Any], Any], _Kind]] = []
        # For each field, the position of its kind.
        self._positions: dict[str, int] = {}
        families: dict[type[Family], int] = {}
        for field in dataclasses.fields(changes):
            if not field.metadata:
                continue
            kind: _Kind = field.metadata["kind"]
            position = len(self._kinds)
            if kind.family is not None:
                position = families.setdefault(kind.family, position)
            if position == len(self._kinds):
                self._kinds.append((attrgetter(field.name), kind))
            self._positions[field.name] = position

    def merge(self, changes: Sequence[Any]) -> Merged:
        """Merge `changes`, which are given in their order."""
        found: dict[int, list[Any]] = {}
        for change in changes:
            for name, given in change.__dict__.items():
                if not given or (position := self._positions.get(name)) is None:
                    continue
                of_kind = found.setdefault(position, [])
                # Several fields may be of one family.
                if not of_kind or of_kind[-1] is not change:
                    of_kind.append(change)
        return Merged([(kind, kind.merge(get, found[at])) for at, (get, kind) in enumerate(self._kinds) if at in found])


class Merged:
    """Rows of many changes, grouped by kind."""

    def __init__(self, found: Sequence[tuple[_Kind, Any]]) -> None:
        self._found = found

    @property
    def about(self) -> Subject:
        """Return the common subject of all rows; "messages" when there are several subjects or none."""
        found = {kind.about for kind, merged in self._found if merged}
        return found.pop() if len(found) == 1 else "messages"

    def part(self, family: type[PartOf]) -> PartOf | None:
        """Return the merged rows of one family; None if there are none."""
        return next((merged for kind, merged in self._found if kind.family is family), None)

    async def write(self, connection: Connection) -> None:
        """Write all rows, kind by kind. May be called again with the same rows."""
        for kind, merged in self._found:
            if merged:
                await kind.write(connection, merged)
