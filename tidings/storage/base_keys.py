"""Base keys of first messages that opened sessions without a one-time pre-key.

They are kept as long as the signed pre-key that the message used. Business and handsets each have such a table. A row
is written in the transaction that stores the session.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import add_rows, any_of, select_paged

PAGE = 500  # rows that a transaction deletes


@dataclasses.dataclass(frozen=True, slots=True)
class BaseKey:
    """Base key of an accepted first message."""

    owner: Annotated[str, types.key(20)]  # number that accepted the message
    base_key: Annotated[str, types.key(64)]  # 64 hexadecimal digits, equal for base keys that open the same session
    peer: Annotated[str, types.key(20)]  # number that sent the message
    signed_prekey_id: int  # the owner's signed pre-key that the message used


class BaseKeyTable:
    """Table of base keys of one family, and its queries."""

    def __init__(self, metadata: types.TableFamily, name: str) -> None:
        by_peer = sa.Index(f"{name}_by_peer", "owner", "peer")
        self.table = metadata.table_of(BaseKey, name, by_peer, key=("owner", "base_key"))
        columns = self.table.c
        of_owner = columns.owner == sa.bindparam("owner")
        self._known = sa.select(columns.base_key).where(of_owner, columns.base_key.in_(any_of("base_keys")))
        self._counts = (
            sa.select(columns.peer, sa.func.count())
            .where(of_owner, columns.peer.in_(any_of("peers")))
            .group_by(columns.peer)
        )
        self._count = sa.select(sa.func.count()).select_from(self.table).where(of_owner)

    async def add(self, connection: AsyncConnection, rows: Sequence[BaseKey]) -> None:
        """Store base keys. Existing rows are not changed."""
        await add_rows(connection, self.table, rows)

    async def list_known(self, connection: AsyncConnection, owner: str, base_keys: Collection[str]) -> set[str]:
        """Return those of the given base keys that are stored."""
        rows = await select_paged(connection, self._known, "base_keys", sorted(base_keys), owner=owner)
        return {row.base_key for row in rows}

    async def count_by_peer(self, connection: AsyncConnection, owner: str, peers: Collection[str]) -> Mapping[str, int]:
        """Return the number of stored base keys of each of these peers, without those that have none."""
        rows = await select_paged(connection, self._counts, "peers", sorted(peers), owner=owner)
        return dict(rows)

    async def count(self, connection: AsyncConnection, owner: str) -> int:
        """Return the number of stored base keys of all peers."""
        return int((await connection.execute(self._count, {"owner": owner})).scalar_one())

    async def delete_others(self, connection: AsyncConnection, owner: str, kept: sa.Select[Any]) -> bool:
        """Delete one page of base keys of signed pre-keys that are gone. Returns whether more are left.

        kept: query for the ids of the existing signed pre-keys.
        """
        columns = self.table.c
        gone = sa.select(columns.base_key).where(columns.owner == owner, columns.signed_prekey_id.not_in(kept))
        page = (await connection.execute(gone.limit(PAGE))).scalars().all()
        if page:
            await connection.execute(self.table.delete().where(columns.owner == owner, columns.base_key.in_(page)))
        return len(page) == PAGE
