"""Lookup of messages that recipients sent."""

from __future__ import annotations

from tidings.storage.business import messages
from tidings.storage.database import Database

RETRY_SECONDS = 4.0  # seconds for which a request waits for an unavailable database


class ReceivedMessages:
    """Finds the sender of a received message, and so the shard that handles a request about it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sender(self, account: str, message_id: str) -> str:
        """Return the sender of a message that is stored in the sender's shard.

        Returns an empty string for an unknown message and for one in the first shard, which has the messages of
        groups.
        """
        return await self._database.query(
            lambda connection: messages.find_peer_of_shard(connection, account, message_id), retry_seconds=RETRY_SECONDS
        )
