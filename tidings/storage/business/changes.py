"""Versions of data that processes cache. A transaction that changes such data raises its version."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

# Subjects: application settings; all kinds of `certificates`, such as the API's certificate, webhook authorities and
# webhook secrets; templates; revoked tokens; addresses from which users log in; numbers of the installation; blocked
# users; limits of numbers in the Cloud API; numbers that send through the real Cloud API.
SETTINGS = "settings"
CERTIFICATES = "certificates"
TEMPLATES = "templates"
TOKENS = "tokens"
LOGINS = "logins"
NUMBERS = "numbers"
BLOCKED_USERS = "blocked_users"
CLOUD_LIMITS = "cloud_limits"
UPSTREAMS = "upstreams"

table = metadata.table(
    "changes",
    sa.Column("subject", types.key(32), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
)


async def note(connection: AsyncConnection, subject: str) -> None:
    """Raise the version of a subject. Must be the last statement of a transaction, because others then wait for it."""
    raised = await connection.execute(
        table.update().where(table.c.subject == subject).values(version=table.c.version + 1)
    )
    if raised.rowcount == 0:
        await connection.execute(insert_or_ignore(connection, table), [{"subject": subject, "version": 0}])
        await connection.execute(table.update().where(table.c.subject == subject).values(version=table.c.version + 1))


async def list_versions(connection: AsyncConnection) -> Mapping[str, int]:
    """Return the version of each subject. A subject that has never changed is missing."""
    rows = await connection.execute(sa.select(table.c.subject, table.c.version))
    return {row.subject: row.version for row in rows}
