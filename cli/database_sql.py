"""SQL statements that create the schemas and users of an installation on a MySQL or MariaDB server."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

READ_AND_WRITE = "SELECT, INSERT, UPDATE, DELETE"
ALL = "ALL PRIVILEGES"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseUser:
    """User of the database server."""

    name: str
    password: str = dataclasses.field(repr=False)
    schemas: Sequence[str]
    rights: str = READ_AND_WRITE  # ALL for the user of migrations


def statements(users: Sequence[DatabaseUser], *, host: str = "%", tls: bool = True, again: bool = False) -> str:
    """Return the statements, one per line. Executing them a second time has no effect.

    Raises `ValueError` for a line break or another unprintable character in a name or password.

    host: host that the users connect from; `%` for any.
    tls: require encrypted connections.
    again: also set the passwords of users that exist already.
    """
    lines = [
        f"CREATE DATABASE IF NOT EXISTS {_name(schema)} CHARACTER SET utf8mb4;"
        for schema in sorted({schema for user in users for schema in user.schemas})
    ]
    for user in sorted(users, key=lambda user: user.name):
        account = f"{_text(user.name)}@{_text(host)}"
        required = " REQUIRE SSL" if tls else ""
        identified = f"{account} IDENTIFIED BY {_text(user.password)}{required};"
        lines.append(f"CREATE USER IF NOT EXISTS {identified}")
        lines += [f"ALTER USER {identified}"] if again else []
        lines += [f"GRANT {user.rights} ON {_pattern(schema)}.* TO {account};" for schema in sorted(set(user.schemas))]
    return "\n".join(lines) + "\n"


def _name(schema: str) -> str:
    escaped = schema.replace("`", "``")
    return f"`{escaped}`"


def _pattern(schema: str) -> str:
    """Return the name for GRANT, where an unescaped `_` or `%` is a wildcard that matches other schemas."""
    escaped = schema.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
    return _name(escaped)


def _text(value: str) -> str:
    if not value.isprintable():
        raise ValueError("names and passwords of the database must not contain line breaks or control characters")
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
