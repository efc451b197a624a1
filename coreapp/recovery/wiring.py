"""The parts that mend sessions and send messages again, wired for one shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coreapp.account.device import OwnDevice
from coreapp.journal import Journal
from coreapp.media.preparation_queue import PreparationQueue
from coreapp.peers.sessions import SessionStore
from coreapp.recovery.control_messages import ControlMessages, Count
from coreapp.recovery.resending import Resending
from coreapp.recovery.retry_requests import RetryRequests
from coreapp.recovery.sent_content import SentContents
from coreapp.recovery.session_repair import Budget, SessionRepair
from coreapp.sending.encryption import Encryption
from coreapp.statuses.tracker import StatusTracker
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
        media: PreparationQueue,
        journal: Journal,
        progress: StatusTracker,
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
        media: PreparationQueue,
        journal: Journal,
        progress: StatusTracker,
        count: Count,
        rows: CallbackRows,
        clock: Clock,
        *,
        left: Sequence[Undecrypted],
        shard: int,
    ) -> None:
        account = device.number
        budget = Budget(clock)
        self.keeping = SentContents(device, store)
        self.posting = ControlMessages(encryption, media.resume, progress, count, clock, account=account, shard=shard)
        self.mending = SessionRepair(store, encryption, budget)
        self.resending = Resending(database, self.keeping, store, encryption, progress, budget, account=account)
        self.asked_again = RetryRequests(journal, rows, clock, left, account=account, shard=shard)
