"""Certificates and keys of an account: the API's own certificate, authorities that verify webhook servers, a public key
of the business, the secrets that sign callbacks, the key of users' ids, and credentials of the real Cloud API. All but
the second and the third are sealed.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import changes
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore, insert_or_update

# Kinds. The first two are sealed by `tidings.e2ee.installation_secrets`. The third is PEM.
EXTERNAL = "external"  # uploaded: private key, certificate, intermediates
SELF_SIGNED = "self_signed"  # made by a Webapp if none was uploaded
WEBHOOK_CA = "webhook_ca"
FLOWS_KEY = "flows_key"  # the business's public key, as PEM
WEBHOOK_SECRETS = "webhook_secrets"  # sealed like the first two; exists from the first rotation on
CLOUD_USER_KEY = "cloud_user_key"  # derives ids of users in the Cloud API; sealed likewise
CLOUD_UPSTREAM = "cloud_upstream"  # credentials of a number that sends through the real Cloud API; sealed likewise

table = metadata.table(
    "certificates",
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("kind", types.key(16), primary_key=True),
    sa.Column("content", types.blob(), nullable=False),
)


async def find_certificate(
    connection: AsyncConnection, account: str, kind: str, *, for_update: bool = False
) -> bytes | None:
    """Find the content of one kind. `for_update` locks it until the transaction ends."""
    query = sa.select(table.c.content).where(table.c.account == account, table.c.kind == kind)
    if for_update:
        query = query.with_for_update()
    content = (await connection.execute(query)).scalar()
    return None if content is None else bytes(content)


async def set_certificate(connection: AsyncConnection, account: str, kind: str, content: bytes) -> None:
    """Set the content of one kind, and replace the earlier one."""
    statement = insert_or_update(connection, table)
    await connection.execute(statement, [{"account": account, "kind": kind, "content": content}])
    await changes.note(connection, changes.CERTIFICATES)


async def add_certificate_if_missing(connection: AsyncConnection, account: str, kind: str, content: bytes) -> None:
    """Set the content of one kind unless it exists."""
    statement = insert_or_ignore(connection, table)
    await connection.execute(statement, [{"account": account, "kind": kind, "content": content}])
    await changes.note(connection, changes.CERTIFICATES)


async def delete_certificate(connection: AsyncConnection, account: str, kind: str) -> bool:
    """Delete the content of one kind. Returns whether it existed."""
    deleted = await connection.execute(table.delete().where(table.c.account == account, table.c.kind == kind))
    await changes.note(connection, changes.CERTIFICATES)
    return deleted.rowcount > 0
