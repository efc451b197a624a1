"""Messages that recipients have sent, as far as a Webapp has to know them."""

from __future__ import annotations

from tidings.storage.business import messages
from tidings.storage.database import Database

PATIENCE = 4.0  # seconds that a caller waits for a database that is away


class ReceivedMessages:
    """Whose shard has which message."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sender(self, account: str, message_id: str) -> str:
        """The sender of a message that is in their shard; empty for one in the first shard, which has those of groups,
        and for one that is not known."""
        return await self._database.query(
            lambda connection: messages.find_peer_of_shard(connection, account, message_id), patience=PATIENCE
        )
