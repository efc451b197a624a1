"""The parts that mend sessions and send messages again, wired for one shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coreapp.account import OwnDevice
from coreapp.encryption import Encryption
from coreapp.journal import Journal
from coreapp.media.lane import MediaLane
from coreapp.progress import ProgressBook
from coreapp.repeating.keeping import Keeping
from coreapp.repeating.letters import Count, Posting
from coreapp.repeating.mending import Budget, Mending
from coreapp.repeating.resending import Resending
from coreapp.repeating.waiting import AskedAgain
from coreapp.session_store import SessionStore
from coreapp.webhook.rows import CallbackRows
from tidings.runtime.clock import Clock
from tidings.storage.business import undecrypted
from tidings.storage.business.undecrypted import Undecrypted
from tidings.storage.database import Database


class ShardRepeating:
    """The parts. Make it by `read`."""

    @classmethod
    async def read(
        cls,
        database: Database,
        device: OwnDevice,
        store: SessionStore,
        encryption: Encryption,
        media: MediaLane,
        journal: Journal,
        progress: ProgressBook,
        count: Count,
        persist: Callable[[], bool],
        clock: Clock,
        *,
        shard: int,
    ) -> ShardRepeating:
        """With what the last owner waited for."""
        async with database.reading() as connection:
            left = await undecrypted.list_all(connection, shard)
        rows = CallbackRows(persist, clock, account=device.number, shard=shard)
        return cls(
            database, device, store, encryption, media, journal, progress, count, rows, clock, left=left, shard=shard
        )

    def __init__(
        self,
        database: Database,
        device: OwnDevice,
        store: SessionStore,
        encryption: Encryption,
        media: MediaLane,
        journal: Journal,
        progress: ProgressBook,
        count: Count,
        rows: CallbackRows,
        clock: Clock,
        *,
        left: Sequence[Undecrypted],
        shard: int,
    ) -> None:
        account = device.number
        budget = Budget(clock)
        self.keeping = Keeping(device, store)
        self.posting = Posting(encryption, media.resume, progress, count, clock, account=account, shard=shard)
        self.mending = Mending(store, encryption, budget)
        self.resending = Resending(database, self.keeping, store, encryption, progress, budget, account=account)
        self.asked_again = AskedAgain(journal, rows, clock, left, account=account, shard=shard)
