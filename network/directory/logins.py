"""Verification of devices' tokens: 256 random bits each, of which only a hash is stored."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import math
import secrets
from collections.abc import Collection, Mapping, Sequence

from network.directory.recipients import Recipients
from network.directory.seen_devices import SeenDevices
from tidings.aio.batcher import Batcher
from tidings.storage.database import Connection, Database
from tidings.storage.network import directory, prekeys
from tidings.storage.network.prekeys import PreKeyCounts

# Seconds between two batches: thousands of simultaneous logins share them, and a single one does not wait.
SPACING = 0.005


@dataclasses.dataclass(frozen=True, slots=True)
class _Registered:
    """Device as it was read for its login."""

    token_hash: bytes
    identity_key: bytes
    left: PreKeyCounts  # one-time pre-keys left
    blocks: Collection[str]  # numbers that the device blocks
    changes: int  # changes of recipients before the read


def make_token() -> str:
    """Return a new URL-safe token."""
    return secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """Return the hash to store. A plain hash is enough, because 256 random bits cannot be guessed."""
    return hashlib.sha256(token.encode()).digest()


def matches(token: str, stored: bytes) -> bool:
    """Return whether a token has the stored hash, compared in constant time."""
    return hmac.compare_digest(digest(token), stored)


@dataclasses.dataclass(frozen=True, slots=True)
class VerifiedDevice:
    """Device whose token was verified."""

    left: PreKeyCounts  # One-time pre-keys left at the network.
    identity_key: bytes  # Key that the device is registered with.
    token_hash: bytes


class DeviceLogins:
    """Logins, verified in batches: a thousand simultaneous ones take a few queries.

    A login also reads what the first envelope for the device needs.
    """

    def __init__(self, database: Database, seen: SeenDevices, recipients: Recipients) -> None:
        self._database = database
        self._seen = seen
        self._recipients = recipients
        # Item: a number, and whether to count its pre-keys and read its blocks.
        self._batcher: Batcher[tuple[str, bool], _Registered | None] = Batcher(
            "logins", self._flush, max_in_flight=2, spacing=SPACING
        )
        self._changes = 0

    def changed(self) -> None:
        """Make logins in progress read again, because a token was replaced. Call this after the commit."""
        self._changes += 1

    @property
    def changes(self) -> int:
        """Return the number of token replacements. A verified login is valid as long as this stays the same."""
        return self._changes

    async def verify(self, number: str, token: str, host: str) -> VerifiedDevice | None:
        """Return the verified device, `None` when the token is not its token. Raises `BatcherFull`.

        Waits while the database is unreachable.

        host: address of the client.
        """
        found = await self._find(number, token, host, counts=True)
        if found is None:
            return None
        self._recipients.learn((number,), {number: found.blocks}, found.changes)
        return VerifiedDevice(found.left, found.identity_key, found.token_hash)

    async def is_device(self, number: str, token: str, host: str) -> bool:
        """Return whether this is the token of the device, without counting pre-keys. Waits and raises as `verify`."""
        return await self._find(number, token, host, counts=False) is not None

    async def list_token_hashes(self, numbers: Sequence[str]) -> Mapping[str, bytes]:
        """Return the hashes of the tokens of those of the numbers that are registered."""
        found = await self._database.query(lambda c: directory.list_credentials(c, numbers))
        return {number: token_hash for number, (token_hash, _) in found.items()}

    async def _find(self, number: str, token: str, host: str, *, counts: bool) -> _Registered | None:
        while True:
            changes = self._changes
            found = await self._batcher.submit((number, counts))
            if changes == self._changes:
                break
        if found is None or not matches(token, found.token_hash):
            return None
        self._seen.add(number, host)
        return found

    async def _flush(self, asked: Sequence[tuple[str, bool]]) -> Sequence[_Registered | None]:
        async def work(
            connection: Connection,
        ) -> tuple[dict[str, tuple[bytes, bytes]], dict[str, PreKeyCounts], dict[str, set[str]]]:
            credentials = await directory.list_credentials(connection, {number for number, _ in asked})
            counted = [number for number, counts in dict.fromkeys(asked) if counts and number in credentials]
            if not counted:
                return credentials, {}, {}
            return (
                credentials,
                await prekeys.count_left(connection, counted),
                await directory.list_blocks(connection, counted),
            )

        changes = self._recipients.changes
        credentials, counts, blocks = await self._database.query(work, retry_seconds=math.inf)
        return [
            _Registered(*credentials[number], counts.get(number, PreKeyCounts()), blocks.get(number, ()), changes)
            if number in credentials
            else None
            for number, _ in asked
        ]
