"""The statements that reach a database, noted on their way to the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa


@contextlib.contextmanager
def noted(containing: str) -> Iterator[list[str]]:
    """Within the block, the statements of every engine in this process that contain this text."""
    found: list[str] = []

    def note(connection: sa.Connection, cursor: Any, statement: str, *_: Any) -> None:
        if containing in statement:
            found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
