"""Block list of a number: users whose messages it does not get."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from tidings.aio.clock import Clock
from tidings.storage.business import blocked_users, changes, numbers, service_windows
from tidings.storage.business.blocked_users import BlockedUser
from tidings.storage.database import Connection, Database
from tidings.wire.cloud.codes import BLOCK_LIST_FULL, RECIPIENT_IS_SENDER, REENGAGEMENT
from webapp.api.cloud.settings_changes import SettingsChanges
from webapp.auth.tokens import Caller

log = logging.getLogger(__name__)

MAX_BLOCKED = 64_000
WINDOW_MS = 24 * 3600 * 1000
"""Milliseconds since the last message of a user within which the user can be blocked."""


@dataclasses.dataclass(frozen=True, slots=True)
class RefusedBlock:
    """Reason why a user was not blocked."""

    code: int
    details: str


class BlockList:
    """Users that the caller's number has blocked.

    A change is in the database when its call returns, and in force as a change of `SettingsChanges`.
    """

    def __init__(self, database: Database, clock: Clock, announced: SettingsChanges) -> None:
        self._database = database
        self._clock = clock
        self._announced = announced

    async def block(self, caller: Caller, users: Sequence[str]) -> dict[str, RefusedBlock]:
        """Block users, each a wa_id once. Returns those who could not be blocked, with the reasons."""
        now = self._clock.now_ms()
        refused: dict[str, RefusedBlock] = {}

        async def work(connection: Connection) -> None:
            refused.clear()
            # Concurrent calls could exceed the limit.
            await numbers.lock(connection, caller.account)
            known = await blocked_users.list_known(connection, caller.account, users)
            last_message_at = await service_windows.list_last_message_at(connection, caller.account, users)
            room = MAX_BLOCKED - await blocked_users.count(connection, caller.account)
            added: list[BlockedUser] = []
            for user in users:
                if user in known:
                    continue
                if user == caller.account:
                    refused[user] = RefusedBlock(RECIPIENT_IS_SENDER, "a number cannot block itself")
                elif last_message_at.get(user, 0) <= now - WINDOW_MS:
                    details = "only users who wrote within the last 24 hours can be blocked"
                    refused[user] = RefusedBlock(REENGAGEMENT, details)
                elif len(added) >= room:
                    refused[user] = RefusedBlock(BLOCK_LIST_FULL, f"{MAX_BLOCKED} users are blocked")
                else:
                    added.append(BlockedUser(caller.account, user, now))
            await blocked_users.add(connection, added)

        await self._announced.commit([caller.account], work, changes.BLOCKED_USERS)
        log.info("cloud.blocked", extra={"username": caller.username, "count": len(users) - len(refused)})
        return refused

    async def unblock(self, caller: Caller, users: Sequence[str]) -> None:
        """Unblock users, whether they are blocked or not."""
        await self._announced.commit(
            [caller.account],
            lambda connection: blocked_users.remove(connection, caller.account, users),
            changes.BLOCKED_USERS,
        )
        log.info("cloud.unblocked", extra={"username": caller.username, "count": len(users)})

    async def list_after(self, caller: Caller, after: str, limit: int) -> Sequence[str]:
        """List up to `limit` blocked users that follow `after`, by number; from the first one for an empty text."""
        async with self._database.reading() as connection:
            return await blocked_users.list_after(connection, caller.account, after, limit=limit)

    async def list_before(self, caller: Caller, before: str, limit: int) -> Sequence[str]:
        """List up to `limit` blocked users that precede `before`, by number."""
        async with self._database.reading() as connection:
            return await blocked_users.list_before(connection, caller.account, before, limit=limit)
