"""Typing indicators to recipients who are online: encrypted like messages, sent once, and never stored."""

from __future__ import annotations

import asyncio
import dataclasses

from coreapp.context import ShardContext
from coreapp.journal.change import Change
from coreapp.peers.sessions import SessionStore
from coreapp.sending.encryption import Encryption
from tidings.aio.lru import LRU
from tidings.storage.business.jobs import Job, JobForm
from tidings.wire import content, device
from tidings.wire.ids import MessageIds

SPACING = 1.0  # seconds between two indicators to one recipient; those in between are dropped
REMEMBERED = 10_000  # recipients whose last indicator is remembered
# Messages of one chain after which no indicator is sent. The recipient skips the key of each dropped indicator, and
# cannot read a new chain after 2,000 skipped keys. The next message from the recipient begins another chain.
MAX_UNANSWERED = 1000


@dataclasses.dataclass(eq=False, repr=False)
class TypingIndicators:
    """Typing indicators of one account. None is sent to a recipient without a session that both sides have used."""

    context: ShardContext
    sessions: SessionStore
    _: dataclasses.KW_ONLY
    encryption: Encryption

    def __post_init__(self) -> None:
        self._ids = MessageIds()
        # Monotonic time of the last indicator, by recipient.
        self._last: LRU[str, float] = LRU(REMEMBERED)

    async def show(self, peer: str, message_id: str, request_id: str) -> None:
        """Show a recipient that the business is typing a reply to this message. Returns before the indicator is
        sent."""
        now = self.context.clock.monotonic()
        last = self._last.get(peer)
        if not self.context.network_connection.connected or (last is not None and now - last < SPACING):
            return
        self._last.put(peer, now)
        with self.sessions.pinned((peer,)):
            await self.sessions.load((peer,))
            self._encrypt(peer, message_id, request_id)

    def _encrypt(self, peer: str, message_id: str, request_id: str) -> None:
        """Encrypt an indicator, commit the session, and send the indicator afterwards."""
        context = self.context
        record = self.sessions.in_memory(peer)
        if record is None or record.unacknowledged or record.unanswered >= MAX_UNANSWERED:
            return
        job = Job(
            self._ids.new(), context.shard, context.account, peer, JobForm.NEW, "", b"", context.now(), request_id
        )
        half = self.encryption.encrypt_now(job, content.encode_typing(message_id))
        if half is None:
            return
        committed = context.journal.put(Change(context.account, sending_halves=[half]), urgent=True)
        self.encryption.hold(peer, committed)
        # The time to live is for nodes of earlier releases, which may store the envelope.
        envelope = device.Send(
            0,
            context.account,
            peer,
            job.id,
            device.TRANSIENT,
            job.body,
            ttl=int(content.TYPING_SECONDS),
            trace=request_id,
        )

        def done(committed: asyncio.Future[None]) -> None:
            if not committed.cancelled() and committed.exception() is None:
                context.network_connection.send(envelope)

        committed.add_done_callback(done)
