"""Tables and column types with the same meaning on SQLite and on MySQL."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Sequence
from types import UnionType
from typing import Annotated, Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import mysql


class TableFamily(sa.MetaData):
    """Tables that migrate together."""

    def table(self, name: str, *parts: sa.schema.SchemaItem) -> sa.Table:
        """Define a table of the family."""
        return sa.Table(name, self, *parts, mysql_engine="InnoDB")

    def table_of(self, row: type, name: str, *parts: sa.schema.SchemaItem, key: Sequence[str]) -> sa.Table:
        """Define the table whose rows are the instances of a dataclass, with a column per field.

        The annotation of a field names the type of its column, and after it a default that the server sets if it has
        one, and the column's name if it has another: `Annotated[str, types.key(20), sa.DefaultClause(""), "group_id"]`.
        `bytes`, `bool` and `int` (32 bits) are also understood alone. Only columns of fields that may be None are
        nullable. Statements use the names of the fields.

        key: names of the columns of the primary key
        """
        hints = typing.get_type_hints(row, include_extras=True)
        columns = [_column(field.name, hints[field.name], field.name in key) for field in dataclasses.fields(row)]
        return self.table(name, *columns, *parts)


def _column(name: str, hint: Any, is_key: bool) -> sa.Column[Any]:
    kind, *declared = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    alternatives = typing.get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if not declared:
        declared = [{bytes: blob(), bool: sa.Boolean(), int: sa.Integer()}[alternatives[0]]]
    column_type, *more = declared
    return sa.Column(
        next((part for part in more if isinstance(part, str)), name),
        column_type,
        key=name,
        primary_key=is_key,
        nullable=type(None) in alternatives,
        autoincrement=False,
        server_default=next((part for part in more if isinstance(part, sa.DefaultClause)), None),
    )


class _Encoded(sa.TypeDecorator[Any]):
    """Values stored as a text that `encode` makes of them and `decode` reads."""

    impl = sa.Text
    cache_ok = True

    def __init__(
        self, column: sa.types.TypeEngine[str], encode: Callable[[Any], str], decode: Callable[[str], Any]
    ) -> None:
        super().__init__()
        self.column = column
        self.encode = encode
        self.decode = decode

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[str]:
        return self.column.dialect_impl(dialect)

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[Any], str]:
        return self.encode

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> Callable[[Any], Any]:
        return self.decode


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


def json(kind: Any, length: int | None = None) -> sa.types.TypeEngine[Any]:
    """JSON text of a value of type `kind`, at most `length` characters or 16 MiB long."""
    return _Encoded(long_text() if length is None else text(length), _to_json, msgspec.json.Decoder(kind).decode)


def words() -> sa.types.TypeEngine[tuple[str, ...]]:
    """Words without spaces, up to 16 MiB together."""
    return _Encoded(long_text(), " ".join, _split)


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def blob() -> sa.types.TypeEngine[bytes]:
    """Binary data up to 16 MiB."""
    return sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), "mysql", "mariadb")


def fixed_bytes(length: int) -> sa.types.TypeEngine[bytes]:
    """Binary data of at most `length` bytes, stored in the row."""
    return sa.LargeBinary(length).with_variant(mysql.VARBINARY(length), "mysql", "mariadb")


def milliseconds() -> sa.types.TypeEngine[int]:
    """Point in time, Unix milliseconds."""
    return sa.BigInteger()


# Field of a row class: a point in time.
UnixMilliseconds = Annotated[int, milliseconds()]
