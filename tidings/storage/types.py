"""Column types that mean the same on SQLite and on MySQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, sqlite


class _Key(mysql.VARCHAR):
    """ASCII text. Text that is not ASCII can be asked for, and nothing is found.

    MariaDB and MySQL refuse to compare it (1267, 1270), which would let whoever names an id end the query. In its place
    goes a text that is one character too long for the column: no row has it, and no row can be given it.
    """

    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any]:
        assert self.length is not None
        in_no_row = "\x7f" * (self.length + 1)
        return lambda value: value if not isinstance(value, str) or value.isascii() else in_no_row


def key(length: int) -> sa.types.TypeEngine[str]:
    """ASCII text compared byte by byte: ids, numbers, names of states. Any text may be asked for."""
    return sa.String(length).with_variant(_Key(length, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")


def text(length: int) -> sa.types.TypeEngine[str]:
    """Text for people, any character."""
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def long_text() -> sa.types.TypeEngine[str]:
    """Text up to 16 MiB, any character."""
    return sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def blob() -> sa.types.TypeEngine[bytes]:
    """Bytes up to 16 MiB."""
    return sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")


def fixed_bytes(length: int) -> sa.types.TypeEngine[bytes]:
    """Short bytes, kept in the row."""
    return sa.LargeBinary(length).with_variant(mysql.VARBINARY(length), "mysql", "mariadb")


def serial() -> sa.types.TypeEngine[int]:
    """A 64-bit integer that may be an automatic primary key on both."""
    return sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def milliseconds() -> sa.types.TypeEngine[int]:
    """A point in time as Unix milliseconds."""
    return sa.BigInteger()
