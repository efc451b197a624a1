"""QR codes of business numbers, each with the first text of a user's message."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import save_rows


@dataclasses.dataclass(frozen=True, slots=True)
class MessageQrCode:
    """QR code of a number."""

    account: Annotated[str, types.key(20)]
    # Random.
    code: Annotated[str, types.key(32)]
    prefilled_message: Annotated[str, types.text(140)]
    created_at: types.UnixMilliseconds


table = metadata.table_of(MessageQrCode, "message_qr_codes", key=("account", "code"))


async def save(connection: AsyncConnection, row: MessageQrCode) -> None:
    """Add a QR code, or replace the one of the same code."""
    await save_rows(connection, table, [row])


async def find(connection: AsyncConnection, account: str, code: str) -> MessageQrCode | None:
    query = sa.select(table).where(table.c.account == account, table.c.code == code)
    row = (await connection.execute(query)).first()
    return MessageQrCode(*row) if row is not None else None


async def list_of(connection: AsyncConnection, account: str) -> Sequence[MessageQrCode]:
    """List the QR codes of a number, the oldest first."""
    query = sa.select(table).where(table.c.account == account).order_by(table.c.created_at, table.c.code)
    return [MessageQrCode(*row) for row in await connection.execute(query)]


async def count(connection: AsyncConnection, account: str) -> int:
    query = sa.select(sa.func.count()).select_from(table).where(table.c.account == account)
    return int((await connection.execute(query)).scalar_one())


async def delete(connection: AsyncConnection, account: str, code: str) -> None:
    await connection.execute(table.delete().where(table.c.account == account, table.c.code == code))
