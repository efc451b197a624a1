"""Selection of rows by several columns, `(number, key_id) IN ((…), (…))`, that uses an index on every database.

With the plain form, SQLite scans the whole table (3.40: a row list has no affinity, so that no index matches). MariaDB
does so for a `DELETE` with a list of one row (10.11: 70 ms for 50,000 rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from tidings.storage.database import any_of


class _AnyRow(FunctionElement[bool]):
    """Plain comparison `tuple_(…).in_(…)`, held as the only clause.

    It has no SQL type: the type Boolean would be rendered as `… = 1`, for which no index is used.
    """

    name = "any_row"
    inherit_cache = True


def any_row_of(name: str, *columns: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Return the condition that `columns` equal a row of the list passed as parameter `name`, made by `row_list`."""
    return _AnyRow(sa.tuple_(*columns).in_(any_of(name)))


def row_list(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return the list for `any_row_of`. It must have at least one row.

    A single row is followed by a row of NULLs, which equals nothing. If the row were repeated instead, MySQL 8.0.12
    would read and lock all rows with the same first column.
    """
    found = [tuple(row) for row in rows]
    return [*found, (None,) * len(found[0])] if len(found) == 1 else found


@compiles(_AnyRow)
def _plainly(element: _AnyRow, compiler: Any, **options: Any) -> str:
    text: str = compiler.process(element.clauses, **options)
    return text


@compiles(_AnyRow, "sqlite")
def _with_affinities(element: _AnyRow, compiler: Any, **options: Any) -> str:
    """Render the list as a subquery whose columns have the types of the compared columns."""
    (comparison,) = element.clauses
    columns: Sequence[sa.Column[Any]] = list(comparison.left.clauses)
    types = [compiler.dialect.type_compiler_instance.process(column.type) for column in columns]
    cast = ", ".join(f"CAST(column{index} AS {kind})" for index, kind in enumerate(types, 1))
    names = compiler.process(comparison.left, **options)
    # Only names and types from our own table definitions enter the text. Compared values are parameters.
    return f"{names} IN (SELECT {cast} FROM {compiler.process(comparison.right, **options)})"  # noqa: S608
