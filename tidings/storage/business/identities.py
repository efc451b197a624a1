"""Identities of recipients: the known identity key of each, its age, and whether its change was acknowledged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import any_of, save_rows, select_paged


@dataclasses.dataclass(frozen=True, slots=True)
class StoredIdentity:
    """Known identity of a recipient."""

    account: Annotated[str, types.key(20)]
    peer: Annotated[str, types.key(20)]
    # First 8 bytes of the SHA-256 hash of the identity key.
    hash: Annotated[bytes, types.fixed_bytes(8)]
    # Unix milliseconds at which the key became known here.
    created_at: types.UnixMilliseconds
    acknowledged: bool
    # True if a bundle or first message with this key had post-quantum protection. One without is then a downgrade.
    had_kyber: bool = False


table = metadata.table_of(
    StoredIdentity,
    "identities",
    sa.Index("identities_by_acknowledgement", "account", "acknowledged", "peer"),
    key=("account", "peer"),
)


_PAGE = 1000


async def save(connection: AsyncConnection, found: Sequence[StoredIdentity]) -> None:
    """Save identities, and replace earlier ones of the same peers."""
    await save_rows(connection, table, found)


_IDENTITIES = sa.select(table).where(table.c.account == sa.bindparam("account"), table.c.peer.in_(any_of("peers")))


async def list_identities(connection: AsyncConnection, account: str, peers: Sequence[str]) -> Sequence[StoredIdentity]:
    """List the identities of those of the given peers that have one."""
    rows = await select_paged(connection, _IDENTITIES, "peers", peers, account=account)
    return [StoredIdentity(*row) for row in rows]


async def list_unacknowledged(
    connection: AsyncConnection, account: str, *, after: str, limit: int
) -> Sequence[StoredIdentity]:
    """List unacknowledged changes of identities, by peer, starting after `after`."""
    rows = await connection.execute(
        sa.select(table)
        .where(table.c.account == account, table.c.acknowledged.is_(sa.false()), table.c.peer > after)
        .order_by(table.c.peer)
        .limit(limit)
    )
    return [StoredIdentity(*row) for row in rows]


async def acknowledge(connection: AsyncConnection, account: str, hashes: Sequence[tuple[str, bytes]]) -> None:
    """Acknowledge identities, (peer, hash), of peers whose hash is still this one."""
    await _set(connection, account, hashes, acknowledged=True)


async def note_kyber(connection: AsyncConnection, account: str, hashes: Sequence[tuple[str, bytes]]) -> None:
    """Record post-quantum protection of identities, (peer, hash), of peers whose hash is still this one."""
    await _set(connection, account, hashes, had_kyber=True)


async def _set(connection: AsyncConnection, account: str, hashes: Sequence[tuple[str, bytes]], **values: bool) -> None:
    if hashes:
        await connection.execute(
            table.update()
            .where(
                table.c.account == account,
                table.c.peer == sa.bindparam("of_peer"),
                table.c.hash == sa.bindparam("of_hash", type_=table.c.hash.type),
            )
            .values(values),
            [{"of_peer": peer, "of_hash": hash_} for peer, hash_ in hashes],
        )


async def acknowledge_all(
    connection: AsyncConnection, account: str, *, of: Callable[[str], bool] = lambda peer: True
) -> None:
    """Acknowledge all unacknowledged identities of the peers for which `of` returns true."""
    after = ""
    while page := await list_unacknowledged(connection, account, after=after, limit=_PAGE):
        after = page[-1].peer
        await acknowledge(connection, account, [(row.peer, row.hash) for row in page if of(row.peer)])
