"""Message templates, with which a business may start a conversation: one row per namespace, name and language."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import changes
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

# Increases with each change of an account's templates, so that a process that caches them detects it by a short query.
versions = metadata.table(
    "template_versions",
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
)


POSITIONAL, NAMED = "POSITIONAL", "NAMED"  # formats of parameters
Key = tuple[str, str, str]  # namespace, name, language


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateRow:
    """Template in one language of a namespace."""

    account: Annotated[str, types.key(20)]
    name: Annotated[str, types.key(512)]
    language: Annotated[str, types.key(16)]
    namespace: Annotated[str, types.key(64)]
    category: Annotated[str, types.key(32)]
    # APPROVED, or the reason why it cannot be sent: PENDING, REJECTED, PAUSED, DISABLED …
    status: Annotated[str, types.key(16)]
    # As in the API: HEADER, BODY, FOOTER, BUTTONS …
    components: Annotated[Sequence[dict[str, Any]], types.json(list[dict[str, Any]])]
    created_at: types.UnixMilliseconds
    # `POSITIONAL` for numbered parameters, `NAMED` for named ones.
    parameter_format: Annotated[str, types.key(16)] = POSITIONAL

    @property
    def key(self) -> Key:
        """Return the unique key among the account's templates: namespace, name and language."""
        return self.namespace, self.name, self.language


table = metadata.table_of(TemplateRow, "templates", key=("account", "namespace", "name", "language"))


async def add_template(connection: AsyncConnection, template: TemplateRow) -> bool:
    """Add a new template. Returns false when its namespace has one of that name in that language."""
    await lock(connection, template.account)
    named = _named(template.account, template.name, template.language, template.namespace)
    if await _count(connection, named):
        return False
    await connection.execute(table.insert(), [dataclasses.asdict(template)])
    await _bump(connection, template.account)
    return True


async def put_templates(connection: AsyncConnection, account: str, templates: Sequence[TemplateRow]) -> None:
    """Add templates of an account, and replace those with the same keys."""
    if not templates:
        return
    await lock(connection, account)
    for template in templates:
        named = _named(account, template.name, template.language, template.namespace)
        await connection.execute(table.delete().where(named))
    await connection.execute(table.insert(), [dataclasses.asdict(template) for template in templates])
    await _bump(connection, account)


async def delete_templates(
    connection: AsyncConnection, account: str, name: str, language: str | None = None, namespace: str | None = None
) -> int:
    """Delete a template in one or all languages and one or all namespaces. Returns the number of rows deleted."""
    await lock(connection, account)
    named = _named(account, name, language, namespace)
    found = await _count(connection, named)
    if found:
        await connection.execute(table.delete().where(named))
        await _bump(connection, account)
    return found


async def list_templates(connection: AsyncConnection, account: str) -> list[TemplateRow]:
    """List all templates of an account, by name, language and namespace."""
    rows = await connection.execute(
        sa.select(table).where(table.c.account == account).order_by(table.c.name, table.c.language, table.c.namespace)
    )
    return [TemplateRow(*row) for row in rows]


async def lock(connection: AsyncConnection, account: str) -> None:
    """Lock the account's templates against other changes until the end of the transaction."""
    # The row must exist before it can be locked.
    await connection.execute(insert_or_ignore(connection, versions), [{"account": account, "version": 0}])
    await connection.execute(sa.select(versions).where(versions.c.account == account).with_for_update())


async def find_version(connection: AsyncConnection, account: str) -> int:
    """Return the version of the account's templates, which increases with each change; 0 if there was none."""
    statement = sa.select(versions.c.version).where(versions.c.account == account)
    return (await connection.execute(statement)).scalar() or 0


def _named(account: str, name: str, language: str | None, namespace: str | None) -> sa.ColumnElement[bool]:
    found = [table.c.account == account, table.c.name == name]
    if language is not None:
        found.append(table.c.language == language)
    if namespace is not None:
        found.append(table.c.namespace == namespace)
    return sa.and_(*found)


async def _count(connection: AsyncConnection, named: sa.ColumnElement[bool]) -> int:
    return int((await connection.execute(sa.select(sa.func.count()).select_from(table).where(named))).scalar_one())


async def _bump(connection: AsyncConnection, account: str) -> None:
    await connection.execute(
        versions.update().where(versions.c.account == account).values(version=versions.c.version + 1)
    )
    await changes.note(connection, changes.TEMPLATES)
