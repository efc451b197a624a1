"""Merging of many changes into one write: how rows of one kind become one batch, and who writes it.

A class of changes is a dataclass with an `account` and a field for each kind of row. A field is made by one of the
functions below, so its name and type, how several changes merge, and the writer stand in one line. The order of the
fields is the order of the writes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol, TypeVar

from tidings.storage.database import Connection, Subject

Row = TypeVar("Row")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
PartOf = TypeVar("PartOf", bound="Family")


class Family(Protocol):
    """Kinds of rows that bear on each other, such as rows that are saved and rows that are deleted.

    It is false while nothing is to be written.
    """

    def __init__(self, changes: Sequence[Any], /) -> None: ...

    def __bool__(self) -> bool: ...

    async def write(self, connection: Connection, /) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Kind:
    """merge: what to write, from the getter of the field and all changes; false when that is nothing."""

    merge: Callable[[Callable[[Any], Any], Sequence[Any]], Any]
    write: Callable[[Connection, Any], Awaitable[None]]
    about: Subject
    family: type[Family] | None = None


def rows(
    write: Callable[[Connection, Sequence[Row]], Awaitable[None]],
    *,
    key: Callable[[Row], Hashable] | None = None,
    rank: Callable[[Row], int] | None = None,
    about: Subject = "messages",
) -> Sequence[Row]:
    """All rows in their order; with `key` one of each, the last, or the first of the highest `rank`."""

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
    """All rows in their order, a write for each account."""

    def merge(get: Callable[[Any], Any], changes: Sequence[Any]) -> Mapping[str, Sequence[Row]]:
        merged: dict[str, list[Row]] = {}
        for change in filter(get, changes):
            merged.setdefault(change.account, []).extend(get(change))
        return merged

    return _field((), _Kind(merge, _for_each_account(write), about))


def mapping(
    write: Callable[[Connection, Mapping[Key, Value]], Awaitable[None]],
    *,
    combine: Callable[[Value, Value], Value] | None = None,
    about: Subject = "messages",
) -> Mapping[Key, Value] | None:
    """One value for each key: the last, or what `combine` makes of the known one and the next."""

    def merge(get: Callable[[Any], Any], changes: Sequence[Any]) -> Mapping[Key, Value]:
        merged: dict[Key, Value] = {}
        for found in filter(None, map(get, changes)):
            _update(merged, found, combine)
        return merged

    return _field(None, _Kind(merge, write, about))


def mapping_by_account(
    write: Callable[[Connection, str, Mapping[Key, Value]], Awaitable[None]],
    *,
    combine: Callable[[Value, Value], Value] | None = None,
    about: Subject = "messages",
) -> Mapping[Key, Value] | None:
    """One value for each key as in `mapping`, a write for each account."""

    def merge(get: Callable[[Any], Any], changes: Sequence[Any]) -> Mapping[str, Mapping[Key, Value]]:
        merged: dict[str, dict[Key, Value]] = {}
        for change in filter(get, changes):
            _update(merged.setdefault(change.account, {}), get(change), combine)
        return merged

    return _field(None, _Kind(merge, _for_each_account(write), about))


def joined(known: Sequence[Row], more: Sequence[Row]) -> Sequence[Row]:
    """Both, one behind the other, for `combine`."""
    return [*known, *more]


def nested(write: Callable[[Connection, Sequence[Row]], Awaitable[None]], *, about: Subject = "messages") -> Row | None:
    """Changes of a part of their own, which merges them itself."""
    return _field(None, _Kind(lambda get, changes: list(filter(None, map(get, changes))), write, about))


def part_of(family: type[Family], default: Any = (), *, about: Subject = "messages") -> Any:
    """Rows that the family merges and writes, in the place of its first field."""
    kind = _Kind(lambda _, changes: family(changes), lambda connection, merged: merged.write(connection), about, family)
    return _field(default, kind)


def _field(default: Value, kind: _Kind) -> Value:
    return dataclasses.field(default=default, metadata={"kind": kind})


def _for_each_account(write: Callable[[Connection, str, Any], Awaitable[None]]) -> Any:
    async def write_each(connection: Connection, merged: Mapping[str, Any]) -> None:
        for account, found in merged.items():
            await write(connection, account, found)

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
    """The kinds of rows of one class of changes, in the order of their writes."""

    def __init__(self, changes: type) -> None:
        self._kinds: list[tuple[Callable[[Any], Any], _Kind]] = []
        seen: set[type[Family]] = set()
        for field in dataclasses.fields(changes):
            kind: _Kind | None = field.metadata.get("kind")
            if kind is None or kind.family in seen:
                continue
            if kind.family is not None:
                seen.add(kind.family)
            self._kinds.append((attrgetter(field.name), kind))

    def merge(self, changes: Sequence[Any]) -> Merged:
        """What these changes, in their order, write together."""
        return Merged([(kind, kind.merge(get, changes)) for get, kind in self._kinds])


class Merged:
    """Rows of many changes, by kind."""

    def __init__(self, found: Sequence[tuple[_Kind, Any]]) -> None:
        self._found = found

    @property
    def about(self) -> Subject:
        """What the rows are about where that is one thing alone; else messages, which most are about."""
        found = {kind.about for kind, merged in self._found if merged}
        return found.pop() if len(found) == 1 else "messages"

    def part(self, family: type[PartOf]) -> PartOf:
        """The rows of one family."""
        return next(merged for kind, merged in self._found if kind.family is family)  # type: ignore[no-any-return]

    async def write(self, connection: Connection) -> None:
        """Write everything, kind by kind. It may be tried again with the same rows."""
        for kind, merged in self._found:
            if merged:
                await kind.write(connection, merged)
