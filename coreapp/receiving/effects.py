"""Effects of one batch of deliveries, collected until the journal gets them as one change."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from coreapp import statistics
from coreapp.context import ShardContext
from coreapp.groups import receipts
from coreapp.groups.arrivals import Arrivals
from coreapp.groups.receipts import ReceiptSteps
from coreapp.journal.change import Change
from coreapp.journal.session_rows import UsedPreKey
from coreapp.media.downloads import RevokedDownload
from coreapp.peers.contact_cache import ContactCache
from coreapp.peers.identities import IdentityFindings
from coreapp.peers.sessions import SessionStore
from coreapp.recovery.control_messages import ControlMessage
from coreapp.statuses.reports import Reached, StatusReports
from coreapp.statuses.tracker import StatusTracker
from tidings import e2ee
from tidings.storage.base_keys import BaseKey
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.jobs import Job
from tidings.storage.business.media_downloads import Download
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.business.service_windows import UnreadMessage
from tidings.storage.business.undecrypted import UndecryptedMessage
from tidings.wire.device import Deliver


@dataclasses.dataclass(eq=False, repr=False)
class BatchEffects:
    """Effects of one batch. No method waits."""

    # Changes in groups; None in a batch of nothing but receipts for messages to single recipients.
    groups: Arrivals | None
    tracker: StatusTracker
    context: ShardContext
    _: dataclasses.KW_ONLY
    security: bool  # whether messages report the sender's identity, as set at the start of the batch

    def __post_init__(self) -> None:
        self.reached: list[Reached] = []
        self.records: dict[str, e2ee.SessionRecord] = {}  # changed sessions, by peer
        self.dropped: list[str] = []
        self.used_prekeys: list[UsedPreKey] = []
        self.base_keys: list[BaseKey] = []
        self.last_message_at: dict[str, int] = {}
        self.registered: set[str] = set()  # peers with new keys
        self.unread: list[UnreadMessage] = []
        self.withdrawn: dict[str, list[str]] = {}  # by sender: messages that were revoked
        self.callbacks: list[Callback] = []
        self.identity_findings = IdentityFindings()
        self.downloads: list[Download] = []
        self.ended_downloads: list[str] = []
        self.revocations: list[RevokedDownload] = []
        self.lost: dict[str, list[str]] = {}  # by sender: messages to request again
        self.kept: dict[str, bytes] = {}  # by message id: the kept content, as in `Change`
        self.control_messages: list[ControlMessage] = []  # control messages to be sent
        self.held: list[Deliver] = []  # Deliveries to be tried again a little later, and not acknowledged before.
        self._waited_for: list[UndecryptedMessage] = []
        self._counted: dict[str, UndecryptedMessage] = {}
        self._arrived: list[str] = []
        self._renamed: dict[str, str] = {}
        self._messages: list[MessageRow] = []

    @property
    def arrivals(self) -> Arrivals:
        """Changes in groups, in a batch that may have some."""
        assert self.groups is not None
        return self.groups

    def received(self, delivery: Deliver, kind: str, request_id: str = "") -> None:
        """Record a new message. A later one with the same id is a duplicate."""
        statistics.received(kind, self.context.account).inc()
        self.tracker.remember(delivery.message_id, delivery.sender, Status.RECEIVED, kind, request_id)
        self._messages.append(
            MessageRow(
                delivery.message_id,
                self.context.account,
                self.context.shard,
                delivery.sender,
                kind,
                Status.RECEIVED,
                delivery.timestamp,
                request_id,
            )
        )

    def recovered(self, delivery: Deliver, kind: str, request_id: str = "") -> None:
        """Record a repeated message that could not be decrypted before. Its type replaces the placeholder's."""
        statistics.received(kind, self.context.account).inc()
        self.tracker.remember(delivery.message_id, delivery.sender, Status.RECEIVED, kind, request_id)
        self._renamed[delivery.message_id] = kind
        self._arrived.append(delivery.message_id)

    def request_again(self, sender: str, message_id: str, waited_for: UndecryptedMessage | None = None) -> None:
        """Request a message again that could not be decrypted.

        waited_for: row of the wait before the error is reported; None if it is not waited for
        """
        self.lost.setdefault(sender, []).append(message_id)
        if waited_for is not None:
            self._waited_for.append(waited_for)

    def counted(self, undecrypted: UndecryptedMessage) -> None:
        """Record one more message that is reported by number only."""
        self._counted[undecrypted.id] = undecrypted

    def left_unread(self, delivery: Deliver) -> None:
        """Record an unread message, which opens the recipient's service window."""
        # A repeated message has the time of the original one.
        self.last_message_at[delivery.sender] = max(delivery.timestamp, self.last_message_at.get(delivery.sender, 0))
        self.unread.append(
            UnreadMessage(self.context.account, delivery.sender, delivery.message_id, delivery.timestamp)
        )

    def post(
        self, subject: str, kind: str, body: bytes, request_id: str = "", *, sender: str, author: str = ""
    ) -> None:
        """Add a callback after those of the batch so far.

        author: the callback is void unless the message was written by this number; empty for no condition
        """
        callback = self.context.callback(subject, kind, body, recipient=sender, request_id=request_id)
        callback.author = author
        self.callbacks.append(callback)

    def change(
        self, reports: StatusReports, sessions: SessionStore, contacts: ContactCache, jobs: Sequence[Job]
    ) -> Change | None:
        """Return the change to commit; None for none. Nothing else may run between this call and the journal's `put`.

        jobs: those of the control messages
        """
        report = reports.report(self.reached)
        groups = self.groups.changes() if self.groups is not None else None
        checked = (
            contacts.record_registered((*self.last_message_at, *self.registered))
            if self.last_message_at or self.registered
            else ()
        )
        has_changes = report.statuses or self._messages or self._renamed or self._counted or jobs
        if not (has_changes or self.records or self.dropped or groups or self.identity_findings.rows or checked):
            return None
        steps = self.groups.steps if self.groups is not None else ReceiptSteps({})
        return Change(
            self.context.account,
            new_messages=self._messages,
            enqueued_jobs=jobs,
            kept=self.kept,
            renamed=self._renamed,
            new_undecrypted=[*self._waited_for, *self._counted.values()],
            ended_undecrypted=self._arrived,
            whole_sessions=[sessions.seal_whole(peer, record) for peer, record in self.records.items()],
            dropped_sessions=self.dropped,
            used_prekeys=self.used_prekeys,
            new_base_keys=self.base_keys,
            statuses=receipts.merged(report.statuses, steps.statuses) if steps.statuses else report.statuses,
            failed_messages=report.failures,
            checked_contacts=checked,
            last_message_at=self.last_message_at,
            unread_messages=self.unread,
            read_messages=self.withdrawn,
            new_callbacks=[*report.callbacks, *steps.callbacks, *self.callbacks],
            new_downloads=self.downloads,
            finished_downloads=self.ended_downloads,
            withdrawn_downloads=[revocation.entry for revocation in self.revocations],
            groups=groups,
            found_identities=self.identity_findings.rows,
            kyber_identities=self.identity_findings.kyber,
        )
