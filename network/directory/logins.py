"""Verification of the tokens of devices, with what each has left of its one-time pre-keys."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence, Set
from typing import TypeAlias

from network.directory import tokens
from tidings.runtime.batcher import Batcher
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory, prekeys
from tidings.storage.network.prekeys import Counts

# Seconds between two batches: devices that come by the thousand share them, and one that comes alone does not wait.
SPACING = 0.005

# Numbers remembered as seen since they were last taken. About 100 bytes each; those beyond are not remembered.
MAX_SEEN = 100_000

# Hash of the token, identity key, one-time pre-keys that are left.
_Registered: TypeAlias = tuple[bytes, bytes, Counts]


@dataclasses.dataclass(frozen=True, slots=True)
class Proven:
    """A device whose token was right. left: of its one-time pre-keys; identity_key: that it is registered with."""

    left: Counts
    identity_key: bytes


class Logins:
    """Logins, verified in batches: a thousand devices that log in at once cost a few queries."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # A number, and whether its pre-keys are to be counted; its token's hash, identity key and that count.
        self._batcher: Batcher[tuple[str, bool], _Registered | None] = Batcher(
            "logins", self._flush, max_in_flight=2, spacing=SPACING
        )
        self._changes = 0
        self._seen: set[str] = set()

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
        found = await self._find(number, token, counts=True)
        return None if found is None else Proven(found[2], found[1])

    async def is_device(self, number: str, token: str) -> bool:
        """Is this the token of the device? Waits and raises as `verify`, of which it is the part that a call needs."""
        return await self._find(number, token, counts=False) is not None

    async def _find(self, number: str, token: str, *, counts: bool) -> _Registered | None:
        while True:
            changes = self._changes
            found = await self._batcher.submit((number, counts))
            if changes == self._changes:
                break
        if found is None or not tokens.matches(token, found[0]):
            return None
        if len(self._seen) < MAX_SEEN:
            self._seen.add(number)
        return found

    def take_seen(self) -> Set[str]:
        """Return the numbers whose devices have proved themselves since the last call."""
        seen, self._seen = self._seen, set()
        return seen

    async def _flush(self, asked: Sequence[tuple[str, bool]]) -> Sequence[_Registered | None]:
        async def work(connection: Connection) -> tuple[dict[str, tuple[bytes, bytes]], dict[str, Counts]]:
            credentials = await directory.list_credentials(connection, {number for number, _ in asked})
            counted = {number for number, counts in asked if counts and number in credentials}
            return credentials, await prekeys.count_left(connection, list(counted))

        credentials, counts = await self._database.query(work, patience=math.inf)
        return [
            (*credentials[number], counts.get(number, Counts())) if number in credentials else None
            for number, _ in asked
        ]
