"""QR codes of a number."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import string
from collections.abc import Sequence

from tidings.aio.clock import Clock
from tidings.storage.business import message_qr_codes, numbers
from tidings.storage.business.message_qr_codes import MessageQrCode
from tidings.storage.database import Connection, Database
from webapp.api.cloud import errors
from webapp.auth.tokens import Caller

log = logging.getLogger(__name__)

MAX_CODES = 2_000  # QR codes of a number
CODE_LENGTH = 14
_LETTERS = string.ascii_uppercase + string.digits


class QrCodeList:
    """QR codes of the caller's number."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, caller: Caller, prefilled: str) -> MessageQrCode:
        """Create a QR code. Raises `GraphError` when the number has too many."""
        code = "".join(secrets.choice(_LETTERS) for _ in range(CODE_LENGTH))
        row = MessageQrCode(caller.account, code, prefilled, self._clock.now_ms())

        async def work(connection: Connection) -> bool:
            # Concurrent calls could exceed the limit.
            await numbers.lock(connection, caller.account)
            if await message_qr_codes.find(connection, caller.account, code) is not None:
                return True
            if await message_qr_codes.count(connection, caller.account) >= MAX_CODES:
                return False
            await message_qr_codes.save(connection, row)
            return True

        if not await self._database.persist(work, retry_seconds=5.0):
            raise errors.invalid(f"this number has {MAX_CODES} QR codes")
        log.info("cloud.qr_code_created", extra={"username": caller.username})
        return row

    async def change(self, caller: Caller, code: str, prefilled: str) -> MessageQrCode | None:
        """Change the text of a QR code. Returns the code; `None` for an unknown one."""

        async def work(connection: Connection) -> MessageQrCode | None:
            # A concurrent call may delete the code.
            await numbers.lock(connection, caller.account)
            found = await message_qr_codes.find(connection, caller.account, code)
            if found is None:
                return None
            changed = dataclasses.replace(found, prefilled_message=prefilled)
            await message_qr_codes.save(connection, changed)
            return changed

        return await self._database.persist(work, retry_seconds=5.0)

    async def list_all(self, caller: Caller) -> Sequence[MessageQrCode]:
        async with self._database.reading() as connection:
            return await message_qr_codes.list_of(connection, caller.account)

    async def find(self, account: str, code: str) -> MessageQrCode | None:
        async with self._database.reading() as connection:
            return await message_qr_codes.find(connection, account, code)

    async def delete(self, caller: Caller, code: str) -> None:
        """Delete a QR code, whether it exists or not."""

        async def work(connection: Connection) -> None:
            await numbers.lock(connection, caller.account)
            await message_qr_codes.delete(connection, caller.account, code)

        await self._database.persist(work, retry_seconds=5.0)
        log.info("cloud.qr_code_deleted", extra={"username": caller.username})
