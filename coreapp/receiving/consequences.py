"""What one batch of deliveries changes, collected until the journal takes it as one change."""

from __future__ import annotations

from collections.abc import Sequence

from coreapp import statistics
from coreapp.groups import receipts
from coreapp.groups.arrivals import Arrivals
from coreapp.journal import Change
from coreapp.peers.contact_cache import ContactCache
from coreapp.peers.identities import Learnt
from coreapp.peers.sessions import SessionStore
from coreapp.recovery.control_messages import ControlMessage
from coreapp.session_rows import UsedPreKey
from coreapp.statuses.reports import Reached, StatusReports
from coreapp.statuses.tracker import StatusTracker
from coreapp.webhook.rows import CallbackRows
from tidings import e2ee
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.jobs import Job
from tidings.storage.business.media_downloads import Download
from tidings.storage.business.messages import Message, Status
from tidings.storage.business.service_windows import Unread
from tidings.storage.business.undecrypted import Undecrypted
from tidings.wire.device import Deliver


class Consequences:
    """Consequences of one batch. Nothing here waits.

    arrivals: what the batch changes in groups; security: does a message say whose keys it came with, as the batch
    began; records: the sessions that were used; registered: who has new keys; withdrawn: by sender, messages that were
    taken back; lost: by sender, messages that are asked for again; kept: as of `Change`; control_messages: to be sent.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        tracker: StatusTracker,
        rows: CallbackRows,
        *,
        account: str,
        shard: int,
        security: bool,
    ) -> None:
        self.arrivals = arrivals
        self.security = security
        self._tracker = tracker
        self._rows = rows
        self._account = account
        self._shard = shard
        self.reached: list[Reached] = []
        self.records: dict[str, e2ee.SessionRecord] = {}
        self.dropped: list[str] = []
        self.used_prekeys: list[UsedPreKey] = []
        self.heard: dict[str, int] = {}
        self.registered: set[str] = set()
        self.unread: list[Unread] = []
        self.withdrawn: dict[str, list[str]] = {}
        self.callbacks: list[Callback] = []
        self.learnt = Learnt()
        self.downloads: list[Download] = []
        self.ended_downloads: list[str] = []
        self.lost: dict[str, list[str]] = {}
        self.kept: dict[str, bytes] = {}
        self.control_messages: list[ControlMessage] = []
        # To be tried again a little later, and not acknowledged before.
        self.held: list[Deliver] = []
        self._waited_for: list[Undecrypted] = []
        self._counted: dict[str, Undecrypted] = {}
        self._came: list[str] = []
        self._renamed: dict[str, str] = {}
        self._messages: list[Message] = []

    def received(self, delivery: Deliver, kind: str, request_id: str = "") -> None:
        """A message came, and is known from now on: one with its id is a repetition."""
        statistics.received(kind).inc()
        self._tracker.remember(delivery.message_id, delivery.sender, Status.RECEIVED, kind, request_id)
        self._messages.append(
            Message(
                delivery.message_id,
                self._account,
                self._shard,
                delivery.sender,
                kind,
                Status.RECEIVED,
                delivery.timestamp,
                request_id,
            )
        )

    def recovered(self, delivery: Deliver, kind: str, request_id: str = "") -> None:
        """A message came again that could not be decrypted before: what it is stands in the place of what it was."""
        statistics.received(kind).inc()
        self._tracker.remember(delivery.message_id, delivery.sender, Status.RECEIVED, kind, request_id)
        self._renamed[delivery.message_id] = kind
        self._came.append(delivery.message_id)

    def asked_again(self, sender: str, message_id: str, waited_for: Undecrypted | None = None) -> None:
        """A message that could not be decrypted is asked for; waited_for: before the webhook hears of it."""
        self.lost.setdefault(sender, []).append(message_id)
        if waited_for is not None:
            self._waited_for.append(waited_for)

    def counted(self, undecrypted: Undecrypted) -> None:
        """One more message of a sender that the webhook hears of by number alone."""
        self._counted[undecrypted.id] = undecrypted

    def left_unread(self, delivery: Deliver) -> None:
        """A recipient wrote something to be read: it opens the window, and waits to be marked."""
        self.heard[delivery.sender] = delivery.timestamp
        self.unread.append(Unread(self._account, delivery.sender, delivery.message_id, delivery.timestamp))

    def post(
        self, subject: str, kind: str, body: bytes, request_id: str = "", *, sender: str, author: str = ""
    ) -> None:
        """The webhook hears of it, after what it hears already; with `author`, if it is about a message of theirs."""
        callback = self._rows.make(subject, kind, body, recipient=sender, request_id=request_id)
        callback.author = author
        self.callbacks.append(callback)

    def change(
        self, reports: StatusReports, sessions: SessionStore, contacts: ContactCache, jobs: Sequence[Job]
    ) -> Change | None:
        """What is to be committed, if anything is. Nothing else may run between this and the journal's `put`.

        jobs: those of the control messages.
        """
        report = reports.report(self.reached)
        groups = self.arrivals.changes()
        checked = contacts.met((*self.heard, *self.registered))
        news = report.statuses or self._messages or self._renamed or self._counted or jobs
        if not (news or self.records or self.dropped or groups or self.learnt.rows or checked):
            return None
        steps = self.arrivals.steps
        return Change(
            self._account,
            new_messages=self._messages,
            enqueued_jobs=jobs,
            kept=self.kept,
            renamed=self._renamed,
            new_undecrypted=[*self._waited_for, *self._counted.values()],
            ended_undecrypted=self._came,
            whole_sessions=[sessions.seal_whole(peer, record) for peer, record in self.records.items()],
            dropped_sessions=self.dropped,
            used_prekeys=self.used_prekeys,
            statuses=receipts.merged(report.statuses, steps.statuses),
            checked_contacts=checked,
            heard=self.heard,
            unread_messages=self.unread,
            read_messages=self.withdrawn,
            new_callbacks=[*report.callbacks, *steps.callbacks, *self.callbacks],
            new_downloads=self.downloads,
            finished_downloads=self.ended_downloads,
            groups=groups,
            learnt_identities=self.learnt.rows,
            kyber_identities=self.learnt.kyber,
        )
