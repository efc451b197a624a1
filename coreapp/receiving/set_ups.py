"""Replay check of first messages that used no one-time pre-key: each may open a session once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp.context import ShardContext
from tidings import e2ee
from tidings.client.base_keys import AcceptedBaseKeys, name_of
from tidings.storage.base_keys import BaseKey
from tidings.storage.business import accounts
from tidings.storage.business.base_keys import BASE_KEYS
from tidings.storage.database import Connection
from tidings.wire import device
from tidings.wire.device import Deliver

# Seconds between two counts of all base keys of the number. A count of a million rows takes 0.1 s.
RECOUNT = 60.0


@dataclasses.dataclass(eq=False, repr=False)
class SetUps:
    """Session set-ups of one account in one shard. All first messages of a peer arrive in the same shard."""

    context: ShardContext

    def __post_init__(self) -> None:
        self._accepted = AcceptedBaseKeys()
        self._signed: set[int] = set()
        self._counted_at = float("-inf")

    async def load(self, deliveries: Sequence[Deliver]) -> None:
        """Load the stored base keys for the first messages among these deliveries, instead of those of the last batch.

        `check` and `accept` work only for messages of these deliveries.
        """
        named: dict[str, set[str]] = {}
        for delivery in deliveries:
            if delivery.kind == device.PREKEY and (name := _name_of(delivery.body)) is not None:
                named.setdefault(delivery.sender, set()).add(name)
        if not named:
            return
        total, counted_at = self._accepted.total, self.context.clock.monotonic()
        recount = counted_at - self._counted_at >= RECOUNT

        async def work(connection: Connection) -> tuple[set[str], dict[str, int], int]:
            known = await BASE_KEYS.list_known(connection, self.context.account, set().union(*named.values()))
            counts = await BASE_KEYS.count_by_peer(connection, self.context.account, named)
            self._signed = set(await accounts.list_signed_ids(connection, self.context.account))
            return known, dict(counts), await BASE_KEYS.count(connection, self.context.account) if recount else total

        self._accepted.load(*await self.context.database.query(work))
        if recount:
            self._counted_at = counted_at

    def check(self, sender: str, first: e2ee.PreKeySignalMessage) -> None:
        """Require that a message may open a session.

        Raises `e2ee.UnknownPreKey` when its signed pre-key was deleted (shards other than the first may still have it
        in memory), `e2ee.KnownBaseKey` and `e2ee.TooManySetUps`.
        """
        if first.prekey_id is None and first.signed_prekey_id not in self._signed:
            raise e2ee.UnknownPreKey(f"signed pre-key {first.signed_prekey_id}")
        self._accepted.check(sender, first)

    def accept(self, sender: str, first: e2ee.PreKeySignalMessage) -> Sequence[BaseKey]:
        """Record that a message has opened a session. Returns the rows to store in the same transaction."""
        name = self._accepted.accept(sender, first)
        return [BaseKey(self.context.account, name, sender, first.signed_prekey_id)] if name is not None else []


def _name_of(body: bytes) -> str | None:
    try:
        return name_of(e2ee.PreKeySignalMessage.parse(body))
    except e2ee.E2EEError:
        # The error is reported when the message is decrypted.
        return None
