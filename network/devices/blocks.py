"""Numbers whose envelopes a device refuses."""

from __future__ import annotations

from network.directory.changes import DirectoryChanges
from network.errors import BadRequest
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory

MAX_BLOCKED = 1000  # Numbers that one device may block.


class Blocks:
    """Blocked numbers of each device. A block applies to every envelope that arrives after the response."""

    def __init__(self, database: Database, changes: DirectoryChanges) -> None:
        self._database = database
        self._changes = changes

    async def block(self, number: str, other: str) -> None:
        """Block a number. Raises `BadRequest` when the device would block more than 1,000."""

        async def work(connection: Connection) -> None:
            await directory.block(connection, number, other)
            if await directory.count_blocks(connection, number) > MAX_BLOCKED:
                raise BadRequest(f"at most {MAX_BLOCKED} numbers can be blocked", reason="too_many")

        await self._database.persist(work, patience=20)
        await self._changes.blocks(number)

    async def unblock(self, number: str, other: str) -> None:
        """Unblock a number; no error when it was not blocked."""
        await self._database.persist(lambda c: directory.unblock(c, number, other), patience=20)
        await self._changes.blocks(number)
