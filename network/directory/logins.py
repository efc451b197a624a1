"""Verification of the tokens of devices, with what each has left of its one-time pre-keys."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from network.directory import tokens
from tidings.runtime.batcher import Batcher
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory, prekeys
from tidings.storage.network.prekeys import Counts

# Seconds between two batches: devices that come by the thousand share them, and one that comes alone does not wait.
SPACING = 0.005


@dataclasses.dataclass(frozen=True, slots=True)
class Proven:
    """A device whose token was right. left: of its one-time pre-keys; identity_key: that it is registered with."""

    left: Counts
    identity_key: bytes


class Logins:
    """Logins, verified in batches: a thousand devices that log in at once cost a few queries."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._batcher: Batcher[str, tuple[bytes, Proven] | None] = Batcher(
            "logins", self._flush, max_in_flight=2, spacing=SPACING
        )
        self._changes = 0

    def changed(self) -> None:
        """Some token was replaced: logins under way look again. Call this after the commit."""
        self._changes += 1

    @property
    def changes(self) -> int:
        """How often some token was replaced. While this stays the same, what was verified holds."""
        return self._changes

    async def verify(self, number: str, token: str) -> Proven | None:
        """What is known of the device, `None` when the token is not its token. Raises `BatcherFull`.

        Waits while the database is away.
        """
        while True:
            changes = self._changes
            found = await self._batcher.submit(number)
            if changes == self._changes:
                break
        if found is None or not tokens.matches(token, found[0]):
            return None
        return found[1]

    async def _flush(self, numbers: Sequence[str]) -> Sequence[tuple[bytes, Proven] | None]:
        async def work(connection: Connection) -> tuple[dict[str, tuple[bytes, bytes]], dict[str, Counts]]:
            credentials = await directory.list_credentials(connection, set(numbers))
            return credentials, await prekeys.count_left(connection, list(credentials))

        credentials, counts = await self._database.query(work, patience=math.inf)
        found: list[tuple[bytes, Proven] | None] = []
        for number in numbers:
            token_hash, identity_key = credentials.get(number, (b"", b""))
            found.append((token_hash, Proven(counts[number], identity_key)) if token_hash else None)
        return found
