"""Many rows for one statement, by a short way: prepared once, then nothing but values.

SQLAlchemy makes the parameters of each row anew from the statement, some 15 µs for a row of ten columns; there are ten
rows to a message.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

# Statements that are prepared for a dialect; there are fewer in all of a process.
_PREPARED = 256

Row = Mapping[str, Any]


async def write_rows(connection: AsyncConnection, statement: sa.Executable, rows: Sequence[Row]) -> None:
    """Execute a statement that writes once for each row: a value for every name in it, the same names in each.

    statement: one that is kept, since what is prepared for it is found by it. Without rows nothing is done.
    """
    if rows:
        text, values = _prepare(statement, connection.dialect, tuple(rows[0]))
        await connection.exec_driver_sql(text, [values(row) for row in rows])


@functools.lru_cache(_PREPARED)
def _prepare(
    statement: sa.ClauseElement, dialect: sa.Dialect, names: tuple[str, ...]
) -> tuple[str, Callable[[Row], tuple[Any, ...]]]:
    """The text for the driver, and what makes its parameters of a row."""
    compiled: Any = statement.compile(dialect=dialect, column_keys=names)
    order: Sequence[str] = compiled.positiontup
    processors = [(position, compiled._bind_processors.get(name)) for position, name in enumerate(order)]
    processed = [(position, process) for position, process in processors if process is not None]
    pick: Callable[[Row], Any] = operator.itemgetter(*order)

    def values(row: Row) -> tuple[Any, ...]:
        return pick(row) if len(order) > 1 else (pick(row),)

    def processed_values(row: Row) -> tuple[Any, ...]:
        made = list(values(row))
        for position, process in processed:
            made[position] = process(made[position])
        return tuple(made)

    return compiled.string, processed_values if processed else values
