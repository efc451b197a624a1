"""Rows that are asked for by several columns at once: `(number, key_id) IN ((…), (…))`, found by an index everywhere.

Written plainly, SQLite reads the whole table (3.40: a list of rows has no affinity, so that no index fits), and MariaDB
does so for a `DELETE` with a list of one (10.11: 50,000 rows took 70 ms).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from tidings.storage.database import any_of


class _AnyRow(FunctionElement[bool]):
    """The plain comparison, `tuple_(…).in_(…)`, as its one clause.

    It has no type: one of Boolean would be written as `… = 1`, for which no index helps.
    """

    name = "any_row"
    inherit_cache = True


def any_row_of(name: str, *columns: sa.Column[Any]) -> sa.ColumnElement[bool]:
    """Whether a row has these columns as one of a list does, which is given by `name` at execution: by `row_list`."""
    return _AnyRow(sa.tuple_(*columns).in_(any_of(name)))


def row_list(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return the list for `any_row_of`, of at least one row. One alone is followed by a row of NULL: none equals that.

    Given twice instead, MySQL 8.0.12 reads, and locks, all rows with the same first column.
    """
    found = [tuple(row) for row in rows]
    return [*found, (None,) * len(found[0])] if len(found) == 1 else found


@compiles(_AnyRow)
def _plainly(element: _AnyRow, compiler: Any, **options: Any) -> str:
    text: str = compiler.process(element.clauses, **options)
    return text


@compiles(_AnyRow, "sqlite")
def _with_affinities(element: _AnyRow, compiler: Any, **options: Any) -> str:
    """The list as a subquery whose columns have the types of those that they are compared with."""
    (comparison,) = element.clauses
    columns: Sequence[sa.Column[Any]] = list(comparison.left.clauses)
    types = [compiler.dialect.type_compiler_instance.process(column.type) for column in columns]
    cast = ", ".join(f"CAST(column{place} AS {kind})" for place, kind in enumerate(types, 1))
    names = compiler.process(comparison.left, **options)
    # Only names and types of our own table definitions come into the text; what is compared comes as parameters.
    return f"{names} IN (SELECT {cast} FROM {compiler.process(comparison.right, **options)})"  # noqa: S608
