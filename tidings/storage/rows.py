"""Fast execution of statements: compiled once, then given only values; several are sent to a server together.

SQLAlchemy derives the parameters of each row from the statement at every execution, which takes about 15 µs for a row
of ten columns. A message writes ten rows.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.pipeline import Check, PipelinedConnection

# Maximum number of compiled statements in the cache; a process has fewer.
_PREPARED = 256
# Maximum size of a statement with many rows, bytes; far below the limits of servers.
_MAX_STATEMENT = 1_000_000
# List of an `IN (…)`, for which SQLAlchemy makes placeholders at each execution.
_LIST = re.compile(r"\(__\[POSTCOMPILE_\w+?\]\)")
_VALUES = re.compile(r"(INSERT\b.+?\bVALUES )(\(%s(?:, %s)*\))(.*)", re.DOTALL)

Row = Mapping[str, Any]


async def write_rows(connection: AsyncConnection, statement: sa.Executable, rows: Sequence[Row]) -> None:
    """Execute a writing statement once per row. Each row has a value for every name; does nothing without rows.

    On a server the statement is deferred: it is sent with the next one, or before the commit.

    statement: an object that the caller keeps, because the compiled form is cached by it
    """
    if rows:
        await _write(connection, _prepare(statement, connection.dialect, tuple(rows[0])), rows)


async def write_instances(connection: AsyncConnection, statement: sa.Executable, rows: Sequence[Any]) -> None:
    """Execute a writing statement as `write_rows` does, for dataclass instances of one class with a field per name."""
    if rows:
        names = tuple(rows[0].__dataclass_fields__)
        await _write(connection, _prepare(statement, connection.dialect, names, operator.attrgetter), rows)


async def _write(connection: AsyncConnection, prepared: _Prepared, rows: Sequence[Any]) -> None:
    if isinstance(connection, PipelinedConnection):
        await _defer(connection, prepared, rows)
    else:
        await connection.exec_driver_sql(prepared.text, [prepared.values(row) for row in rows])


async def write(
    connection: AsyncConnection, statement: sa.Executable, parameters: Row, check: Check | None = None
) -> None:
    """Execute a statement once, deferred as by `write_rows`. Its row count goes to `check` only."""
    if isinstance(connection, PipelinedConnection):
        await _defer(connection, _prepare(statement, connection.dialect, tuple(parameters)), [parameters], check)
        return
    result = await connection.execute(statement, parameters)
    if check is not None:
        await check(connection, result.rowcount)


async def write_text(connection: AsyncConnection, text: str, *, label: str) -> None:
    """Execute a statement once, deferred as by `write_rows`. Its values are part of the text: numbers or hexadecimal
    literals.

    label: text for logs and listeners
    """
    if isinstance(connection, PipelinedConnection):
        await connection.defer(label, [_encode(text)])
    else:
        await connection.exec_driver_sql(text)


async def _defer(
    connection: PipelinedConnection, prepared: _Prepared, rows: Sequence[Any], check: Check | None = None
) -> None:
    await connection.defer(prepared.text, list(prepared.queries(rows, connection.driver.escape)), check)


@dataclasses.dataclass(frozen=True, slots=True)
class _Prepared:
    """Statement compiled for a dialect."""

    # SQL for the driver.
    text: str
    # Makes the driver's parameters from a row.
    values: Callable[[Any], tuple[Any, ...]]
    # Parts of an INSERT: before the values, the values of one row, after them; None for other statements.
    insert: tuple[str, str, str] | None

    def queries(self, rows: Sequence[Any], escape: Callable[[Any], str]) -> Iterator[bytes]:
        """Yield the queries for these rows: as few as `_MAX_STATEMENT` allows for an INSERT, else one per row."""

        def escaped(row: Any) -> tuple[Any, ...]:
            # `%` writes a number as `escape` does. Letters and digits need no escaping. Most values cost no call so.
            return tuple(
                [
                    value
                    if type(value) is int
                    else f"'{value}'"
                    if type(value) is str and value.isalnum()
                    else escape(value)
                    for value in self.values(row)
                ]
            )

        if self.insert is None:
            for row in rows:
                yield _encode(self.text % escaped(row))
            return
        head, values, tail = self.insert
        found: list[str] = []
        size = 0
        for row in rows:
            one = values % escaped(row)
            if found and size + len(one) > _MAX_STATEMENT:
                yield _encode(f"{head}{','.join(found)}{tail}")
                found, size = [], 0
            found.append(one)
            size += len(one)
        yield _encode(f"{head}{','.join(found)}{tail}")


def _encode(query: str) -> bytes:
    return query.encode("utf-8", "surrogateescape")


@functools.lru_cache(_PREPARED)
def _prepare(
    statement: sa.ClauseElement,
    dialect: sa.Dialect,
    names: tuple[str, ...],
    getter: Callable[..., Callable[[Any], Any]] = operator.itemgetter,
) -> _Prepared:
    """Compile a statement for rows that have a value for each of `names`, which `getter` reads."""
    compiled: Any = statement.compile(dialect=dialect, column_keys=names)
    order: Sequence[str] = compiled.positiontup
    constants = {name: compiled.params[name] for name in order if name not in names}
    processors = [(position, compiled._bind_processors.get(name)) for position, name in enumerate(order)]
    processed = [(position, process) for position, process in processors if process is not None]
    pick = getter(*order)

    def values(row: Any) -> tuple[Any, ...]:
        found = pick({**constants, **row} if constants else row)
        return found if len(order) > 1 else (found,)

    def processed_values(row: Any) -> tuple[Any, ...]:
        made = list(values(row))
        for position, process in processed:
            made[position] = process(made[position])
        return tuple(made)

    text = _LIST.sub("%s", compiled.string)
    parts = _VALUES.fullmatch(text)
    insert = (parts[1] % (), parts[2], parts[3] % ()) if parts is not None else None
    return _Prepared(text, processed_values if processed else values, insert)
