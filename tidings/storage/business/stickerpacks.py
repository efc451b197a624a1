"""Sticker packs and their stickers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import numbers
from tidings.storage.business.tables import metadata


@dataclasses.dataclass(frozen=True, slots=True)
class Pack:
    """Sticker pack; fields are named as in the API."""

    id: Annotated[str, types.key(36)]
    account: Annotated[str, types.key(20)]
    publisher: Annotated[str, types.text(128)]
    name: Annotated[str, types.text(128)]
    ios_app_store_link: Annotated[str, types.text(1024)] = ""
    android_app_store_link: Annotated[str, types.text(1024)] = ""


packs = metadata.table_of(Pack, "stickerpacks", sa.Index("stickerpacks_by_account", "account", "id"), key=("id",))


@dataclasses.dataclass(frozen=True, slots=True)
class Sticker:
    """Sticker of a pack."""

    pack: Annotated[str, types.key(36)]
    # From 0; does not change when other stickers are deleted.
    position: int
    image_data_id: Annotated[str, types.text(128)]
    emojis: Annotated[tuple[str, ...], types.json(tuple[str, ...], 255)]


stickers = metadata.table_of(Sticker, "stickers", key=("pack", "position"))


class PackFull(Exception):
    """The limit of packs or stickers is reached; nothing was added."""


async def list_packs(connection: AsyncConnection, account: str) -> Sequence[Pack]:
    """List all packs of an account."""
    rows = await connection.execute(sa.select(packs).where(packs.c.account == account).order_by(packs.c.id))
    return [Pack(*row) for row in rows]


async def find_pack(connection: AsyncConnection, account: str, pack_id: str) -> Pack | None:
    """Find one pack."""
    query = sa.select(packs).where(packs.c.account == account, packs.c.id == pack_id)
    row = (await connection.execute(query)).first()
    return Pack(*row) if row is not None else None


async def add_pack(connection: AsyncConnection, pack: Pack, *, limit: int) -> None:
    """Add a new pack. Raises `PackFull` when the account has `limit` packs."""
    # Concurrent calls could exceed the limit.
    await numbers.lock(connection, pack.account)
    count = sa.select(sa.func.count()).select_from(packs).where(packs.c.account == pack.account)
    if (await connection.execute(count)).scalar_one() >= limit:
        raise PackFull(f"there are {limit} packs")
    await connection.execute(packs.insert(), [dataclasses.asdict(pack)])


async def change_pack(connection: AsyncConnection, account: str, pack_id: str, changes: Mapping[str, str]) -> bool:
    """Set some columns of a pack. Returns false when the pack does not exist."""
    if await find_pack(connection, account, pack_id) is None:
        return False
    if changes:
        await connection.execute(packs.update().where(packs.c.id == pack_id).values(**changes))
    return True


async def delete_pack(connection: AsyncConnection, account: str, pack_id: str) -> bool:
    """Delete a pack with its stickers. Returns false when the pack does not exist."""
    deleted = await connection.execute(packs.delete().where(packs.c.account == account, packs.c.id == pack_id))
    if deleted.rowcount:
        await connection.execute(stickers.delete().where(stickers.c.pack == pack_id))
    return deleted.rowcount > 0


async def delete_packs(connection: AsyncConnection, account: str) -> None:
    """Delete all packs of an account with their stickers."""
    mine = sa.select(packs.c.id).where(packs.c.account == account)
    ids = [pack_id for (pack_id,) in await connection.execute(mine)]
    await connection.execute(stickers.delete().where(stickers.c.pack.in_(ids)))
    await connection.execute(packs.delete().where(packs.c.account == account))


async def put_pack(connection: AsyncConnection, pack: Pack, contents: Sequence[Sticker]) -> None:
    """Add a pack with its stickers. Neither may exist."""
    await connection.execute(packs.insert(), [dataclasses.asdict(pack)])
    if contents:
        await connection.execute(stickers.insert(), [dataclasses.asdict(sticker) for sticker in contents])


async def list_stickers(connection: AsyncConnection, pack_id: str) -> Sequence[Sticker]:
    """List the stickers of a pack in their order."""
    query = sa.select(stickers).where(stickers.c.pack == pack_id).order_by(stickers.c.position)
    return [Sticker(*row) for row in await connection.execute(query)]


async def find_sticker(connection: AsyncConnection, pack_id: str, position: int) -> Sticker | None:
    """Find one sticker."""
    query = sa.select(stickers).where(stickers.c.pack == pack_id, stickers.c.position == position)
    row = (await connection.execute(query)).first()
    return Sticker(*row) if row is not None else None


async def add_sticker(
    connection: AsyncConnection, pack: Pack, image_data_id: str, emojis: Sequence[str], *, limit: int
) -> int | None:
    """Add a sticker behind the others. Returns its position; `None` when the pack no longer exists.

    Raises `PackFull` when the pack has `limit` stickers.
    """
    # The pack stays locked, so that two new stickers do not get the same position.
    locked = await connection.execute(sa.select(packs.c.id).where(packs.c.id == pack.id).with_for_update())
    if locked.first() is None:
        return None
    query = sa.select(sa.func.count(), sa.func.max(stickers.c.position)).where(stickers.c.pack == pack.id)
    count, last = (await connection.execute(query)).one()
    if count >= limit:
        raise PackFull(f"the pack has {limit} stickers")
    position = 0 if last is None else int(last) + 1
    sticker = Sticker(pack.id, position, image_data_id, tuple(emojis))
    await connection.execute(stickers.insert(), [dataclasses.asdict(sticker)])
    return position


async def change_sticker(
    connection: AsyncConnection, pack_id: str, position: int, changes: Mapping[str, object]
) -> bool:
    """Set some columns of a sticker. Returns false when the sticker does not exist."""
    if await find_sticker(connection, pack_id, position) is None:
        return False
    if changes:
        chosen = stickers.update().where(stickers.c.pack == pack_id, stickers.c.position == position)
        await connection.execute(chosen.values(**changes))
    return True


async def delete_sticker(connection: AsyncConnection, pack_id: str, position: int) -> bool:
    """Delete one sticker; the others keep their positions. Returns false when the sticker does not exist."""
    deleted = await connection.execute(
        stickers.delete().where(stickers.c.pack == pack_id, stickers.c.position == position)
    )
    return deleted.rowcount > 0
