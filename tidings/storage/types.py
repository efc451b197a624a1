"""Column types with the same meaning on SQLite and on MySQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, sqlite


class _Key(mysql.VARCHAR):
    """ASCII text that may be compared with any text. Text that is not ASCII matches no row.

    MariaDB and MySQL refuse the comparison with such text (1267, 1270), so that a client's id could make the query
    fail. The text is replaced by one that is one character too long for the column, which no row can have.
    """

    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], Any]:
        assert self.length is not None
        in_no_row = "\x7f" * (self.length + 1)
        return lambda value: value if not isinstance(value, str) or value.isascii() else in_no_row


def key(length: int) -> sa.types.TypeEngine[str]:
    """ASCII text compared byte by byte, for ids, numbers and names of states. It may be compared with any text."""
    return sa.String(length).with_variant(_Key(length, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")


def text(length: int) -> sa.types.TypeEngine[str]:
    """Human-readable text of any characters, at most `length` characters long."""
    return sa.String(length).with_variant(
        mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
    )


def long_text() -> sa.types.TypeEngine[str]:
    """Text of any characters, up to 16 MiB."""
    return sa.Text().with_variant(mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def blob() -> sa.types.TypeEngine[bytes]:
    """Binary data up to 16 MiB."""
    return sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")


def fixed_bytes(length: int) -> sa.types.TypeEngine[bytes]:
    """Binary data of at most `length` bytes, stored in the row."""
    return sa.LargeBinary(length).with_variant(mysql.VARBINARY(length), "mysql", "mariadb")


def serial() -> sa.types.TypeEngine[int]:
    """64-bit integer that can be an automatic primary key on both."""
    return sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def milliseconds() -> sa.types.TypeEngine[int]:
    """Point in time, Unix milliseconds."""
    return sa.BigInteger()
