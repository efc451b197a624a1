"""Guarantees of the table of QR codes."""

from __future__ import annotations

import dataclasses

from tests.conftest import DatabaseFactory
from tidings.storage.business import message_qr_codes
from tidings.storage.business.message_qr_codes import MessageQrCode

ROW = MessageQrCode("15550000000", "B" * 14, "Gr\u00fc\u00dfe \U0001f44b", 1_000)


async def test_codes_are_saved_replaced_listed_by_age_and_deleted(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    later = dataclasses.replace(ROW, code="A" * 14, created_at=2_000)
    foreign = dataclasses.replace(ROW, account="15550000001")
    async with database.transaction() as connection:
        for row in (later, ROW, foreign):
            await message_qr_codes.save(connection, row)
        changed = dataclasses.replace(ROW, prefilled_message="x" * 140)
        await message_qr_codes.save(connection, changed)
        assert await message_qr_codes.list_of(connection, ROW.account) == [changed, later]
        assert await message_qr_codes.count(connection, ROW.account) == 2
        assert await message_qr_codes.find(connection, ROW.account, later.code) == later
        assert await message_qr_codes.find(connection, foreign.account, later.code) is None
        await message_qr_codes.delete(connection, ROW.account, ROW.code)
        assert await message_qr_codes.list_of(connection, ROW.account) == [later]
        assert await message_qr_codes.list_of(connection, foreign.account) == [foreign]
