"""Message templates: what a business may say first, one row for each name in each language."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business_tables import metadata
from tidings.storage.database import insert_or_ignore

table = sa.Table(
    "templates",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("name", types.key(512), primary_key=True),
    sa.Column("language", types.key(16), primary_key=True),
    sa.Column("namespace", types.key(64), nullable=False),
    sa.Column("category", types.key(32), nullable=False),
    sa.Column("status", types.key(16), nullable=False),
    sa.Column("components", types.long_text(), nullable=False),
    sa.Column("created_at", types.milliseconds(), nullable=False),
    mysql_engine="InnoDB",
)

# Grows with each change of an account's templates, so that whoever keeps them in memory sees it in one short look.
versions = sa.Table(
    "template_versions",
    metadata,
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    mysql_engine="InnoDB",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """One template in one language. created_at: Unix milliseconds.

    status:     APPROVED, or why it cannot be sent: PENDING, REJECTED, PAUSED, DISABLED.
    components: as in the API: HEADER, BODY, FOOTER, BUTTONS.
    """

    account: str
    name: str
    language: str
    namespace: str
    category: str
    status: str
    components: Sequence[dict[str, Any]]
    created_at: int


async def add_template(connection: AsyncConnection, template: Template) -> bool:
    """Keep a new template; false when there is one of that name in that language already."""
    values = dataclasses.asdict(template) | {"components": msgspec.json.encode(template.components).decode()}
    await _lock(connection, template.account)
    known = (template.account, template.name, template.language)
    if await _count(connection, *known):
        return False
    await connection.execute(table.insert(), [values])
    await _bump(connection, template.account)
    return True


async def delete_templates(connection: AsyncConnection, account: str, name: str, language: str | None = None) -> int:
    """Delete a template in one language or in all; returns how many rows there were."""
    await _lock(connection, account)
    found = await _count(connection, account, name, language)
    if found:
        await connection.execute(table.delete().where(_named(account, name, language)))
        await _bump(connection, account)
    return found


async def list_templates(connection: AsyncConnection, account: str) -> list[Template]:
    """All templates of an account, by name and language."""
    rows = await connection.execute(
        sa.select(table).where(table.c.account == account).order_by(table.c.name, table.c.language)
    )
    return [Template(**{**row._mapping, "components": msgspec.json.decode(row.components)}) for row in rows]


async def find_version(connection: AsyncConnection, account: str) -> int:
    """A number that grows with each change of the account's templates; 0 when there was none yet."""
    statement = sa.select(versions.c.version).where(versions.c.account == account)
    return (await connection.execute(statement)).scalar() or 0


def _named(account: str, name: str, language: str | None) -> sa.ColumnElement[bool]:
    named = sa.and_(table.c.account == account, table.c.name == name)
    return named if language is None else sa.and_(named, table.c.language == language)


async def _count(connection: AsyncConnection, account: str, name: str, language: str | None) -> int:
    statement = sa.select(sa.func.count()).select_from(table).where(_named(account, name, language))
    return int((await connection.execute(statement)).scalar_one())


async def _lock(connection: AsyncConnection, account: str) -> None:
    """One change at a time for each account. The row must be there before it can be locked."""
    await connection.execute(insert_or_ignore(connection, versions), [{"account": account, "version": 0}])
    await connection.execute(sa.select(versions).where(versions.c.account == account).with_for_update())


async def _bump(connection: AsyncConnection, account: str) -> None:
    await connection.execute(
        versions.update().where(versions.c.account == account).values(version=versions.c.version + 1)
    )
