"""Statements that reach a database, recorded on their way to the driver."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa


@contextlib.contextmanager
def recorded(containing: str) -> Iterator[list[str]]:
    """Record the statements of every engine in this process that contain this text, within the block."""
    found: list[str] = []

    def note(statement: str, parameters: Any) -> None:
        if containing in statement:
            found.append(statement)

    with _each_statement(note):
        yield found


@contextlib.contextmanager
def sent() -> Iterator[list[tuple[str, Any]]]:
    """Record the statements of every engine in this process with their parameters, within the block."""
    found: list[tuple[str, Any]] = []
    with _each_statement(lambda statement, parameters: found.append((statement, parameters))):
        yield found


@contextlib.contextmanager
def _each_statement(note: Callable[[str, Any], None]) -> Iterator[None]:
    def pass_on(connection: sa.Connection, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        note(statement, parameters)

    sa.event.listen(sa.Engine, "before_cursor_execute", pass_on)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", pass_on)


# Forbidden forms: the reason, and a pattern. All of them work on MariaDB, where they are detected.
UNPORTABLE = {
    "Galera locks no tables": r"\b(?:UN)?LOCK TABLES?\b|\bFLUSH\b",
    "a shared lock is one node's, and TiDB has none": r"\bLOCK IN SHARE MODE\b|\bFOR SHARE\b",
    "what is locked elsewhere is not skipped on a cluster, nor by MariaDB below 10.6": r"\bSKIP LOCKED\b",
    "Galera has no distributed transactions": r"^XA\b",
    "a table that copies another one at once has no key yet": r"^CREATE TABLE\b.*\bAS SELECT\b",
    "only InnoDB is replicated, and transactional": r"\bENGINE ?= ?(?!InnoDB\b)\w",
    "numbers that the database gives have gaps and no order on a cluster": r"\bLAST_INSERT_ID\b",
    "it would hold for everybody": r"^SET (?:GLOBAL|PERSIST)\b",
    # Alembic generates its own statement for the server that it finds.
    "MySQL has no RETURNING": r"^(?!INSERT INTO schema_\w+ \(version_num\)).*\bRETURNING\b",
    "MySQL replaces no table": r"\bCREATE OR REPLACE (?!VIEW\b)",
    "MySQL knows IF EXISTS of tables, databases and users only": (
        r"\b(?:COLUMN|INDEX|KEY|CONSTRAINT) IF (?:NOT )?EXISTS\b|^DROP INDEX IF\b|^CREATE (?:UNIQUE )?INDEX IF\b"
    ),
    "only MariaDB has it": r"^SET STATEMENT\b|\bSEQUENCE\b|\bROWS EXAMINED\b|\bFOR SYSTEM_TIME\b|/\*M!|\bVALUE\(",
    "only MySQL has it": r"\bAS new\b|\bJSON_TABLE\b|->>",
}
_FORBIDDEN = [(reason, re.compile(pattern, re.IGNORECASE | re.DOTALL)) for reason, pattern in UNPORTABLE.items()]


def portability_faults(statement: str) -> list[str]:
    """Return the reasons why a statement would fail on some server or cluster that Tidings supports."""
    return [reason for reason, pattern in _FORBIDDEN if pattern.search(statement.strip())]


class StatementWatch:
    """Watch on every statement of this process's engines on a server. Each is checked once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._bad: list[str] = []

    def note(self, connection: sa.Connection, cursor: Any, statement: str, *_: Any) -> None:
        if connection.dialect.name != "mysql" or statement in self._seen:
            return
        self._seen.add(statement)
        self._bad += [f"{reason}: {statement}" for reason in portability_faults(statement)]

    def take(self) -> list[str]:
        """Return the objections since the last call."""
        found, self._bad = self._bad, []
        return found
