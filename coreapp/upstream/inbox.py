"""Events that the Cloud API has posted: committed with their callbacks before the response to the post.

A message is recognised by its id, a status by message and status, so that a repeated post changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Collection, Mapping, Sequence

from prometheus_client import Counter

from coreapp import statistics
from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.journal.change import Change
from coreapp.media.wiring import ShardMedia
from coreapp.peers.wiring import ShardPeers
from coreapp.statuses.wiring import Statuses
from coreapp.upstream import inbound_ids, received
from coreapp.upstream.profile_changes import ProfileChanges
from coreapp.upstream.received import PostedMessage, PostedStatus, Unusable
from coreapp.upstream.sender import UpstreamSender
from coreapp.upstream.template_changes import TemplateChanges
from coreapp.upstream.templates import TemplateMirror
from coreapp.webhook import bodies, events
from coreapp.webhook.inbound import InboundSystem
from tidings.aio import crashpoints, service
from tidings.storage.business import messages, upstream_ids
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.jobs import Job
from tidings.storage.business.media_downloads import Download
from tidings.storage.business.messages import MessageRow, Status
from tidings.storage.business.service_windows import UnreadMessage
from tidings.storage.business.standins import StandIn
from tidings.storage.business.upstream_ids import UpstreamId
from tidings.wire import codes, core
from tidings.wire.cloud.codes import UNDELIVERABLE

log = logging.getLogger(__name__)

EVENTS = Counter("tidings_cloud_events_total", "Events posted by the real Cloud API", ["kind", "result"])


@dataclasses.dataclass(slots=True)
class _Effects:
    """Rows to commit for the events of one post."""

    new_messages: list[MessageRow] = dataclasses.field(default_factory=list)
    ids: list[UpstreamId] = dataclasses.field(default_factory=list)
    standins: list[StandIn] = dataclasses.field(default_factory=list)
    moved: list[StandIn] = dataclasses.field(default_factory=list)
    last_message_at: dict[str, int] = dataclasses.field(default_factory=dict)
    unread: list[UnreadMessage] = dataclasses.field(default_factory=list)
    callbacks: list[Callback] = dataclasses.field(default_factory=list)
    downloads: list[Download] = dataclasses.field(default_factory=list)
    statuses: dict[str, Status] = dataclasses.field(default_factory=dict)
    failures: dict[str, int] = dataclasses.field(default_factory=dict)  # by message id: code of the failure
    settled: list[Job] = dataclasses.field(default_factory=list)
    invalid: list[str] = dataclasses.field(default_factory=list)  # recipients that cannot get messages


@dataclasses.dataclass(eq=False, repr=False)
class UpstreamInbox:
    """Inbound side of one shard whose number sends through the Cloud API."""

    context: ShardContext
    statuses: Statuses
    _: dataclasses.KW_ONLY
    peers: ShardPeers
    media: ShardMedia
    sender: UpstreamSender
    templates: TemplateChanges
    profile: ProfileChanges

    @property
    def mirror(self) -> TemplateMirror:
        return self.templates.mirror

    @property
    def mirrors(self) -> Sequence[service.Service]:
        """Return the services of the first shard."""
        return self.mirror, self.profile.mirror

    async def commit(self, given: Sequence[core.UpstreamEvent]) -> None:
        """Commit events of this shard's recipients. Raises `RequestRefused` if one belongs to another shard."""
        posted = [event for event in given if event.kind != core.TEMPLATE_EVENT]
        if len(posted) < len(given):
            self.mirror.wake()
        for event in posted:
            if event.peer and not self.context.owns(event.peer):
                raise RequestRefused(codes.NOT_PRIMARY_COREAPP, "an event belongs to another shard", 1)
        parsed = [self._parse(event) for event in posted]
        found_messages = [event for event in parsed if isinstance(event, PostedMessage)]
        found_statuses = [event for event in parsed if isinstance(event, PostedStatus)]
        own_ids = await self._find_own_ids(found_messages, found_statuses, {event.peer for event in posted})
        about = [self._derive(message.wamid) for message in found_messages]
        about += [own for status in found_statuses if (own := self._own_id(status, own_ids))]
        tracker = self.statuses.tracker
        tracker.hold(about)
        try:
            await self._load(about)
            hidden = {message.sender: message.user_id for message in found_messages if message.user_id}
            moved = {message.sender: message.new_user_id for message in found_messages if message.new_user_id}
            others = await self.sender.standin_numbers.prepare(hidden, moved)
            try:
                committed = await self._apply(parsed, own_ids, others)
            except Exception as error:
                # Memory may be ahead of the disk: the shard must be opened again, or a repetition counts as known.
                self.context.journal.fail(error)
                raise
            await self.sender.standin_numbers.confirm(committed)
        finally:
            tracker.release(about)

    async def _apply(
        self,
        parsed: Sequence[PostedMessage | PostedStatus | tuple[int, str] | None],
        own_ids: Mapping[str, str],
        others: Mapping[str, str],
    ) -> Sequence[StandIn]:
        """Commit the effects of events, and return the moved numbers. Nothing else runs until the journal has them.

        others: numbers that stand for users with their new ids already, by those that stood for them before
        """
        effects = _Effects()
        for found in parsed:
            if isinstance(found, PostedMessage) and found.new_user_id and found.sender not in others:
                moved = self.sender.standin_numbers.move(found.sender, found.new_user_id)
                if moved:
                    log.info("upstream.standin_moved", extra={"number": self.context.account, "standin": found.sender})
                effects.moved += moved
                EVENTS.labels(core.MESSAGE_EVENT, "moved").inc()
            elif isinstance(found, PostedMessage):
                if found.new_user_id:
                    found = dataclasses.replace(found, new_number=others[found.sender])
                self._take_message(found, own_ids, effects)
            elif isinstance(found, PostedStatus):
                self._take_status(found, own_ids, effects)
            elif found is not None:
                self._take_error(found, effects)
        await self._write(effects)
        return effects.moved

    def _parse(self, event: core.UpstreamEvent) -> PostedMessage | PostedStatus | tuple[int, str] | None:
        try:
            if event.kind == core.MESSAGE_EVENT:
                stand_in = event.peer if event.user_id else ""
                return received.read_message(event.body, event.name, stand_in=stand_in, user_id=event.user_id)
            if event.kind == core.STATUS_EVENT:
                return received.read_status(event.body)
            return received.read_error(event.body)
        except Unusable as unusable:
            self._drop(event.kind, unusable)
            return None

    def _drop(self, kind: str, unusable: Unusable) -> None:
        EVENTS.labels(kind, "unusable").inc()
        log.warning("upstream.unusable", extra={"kind": kind, "error": str(unusable)})

    async def _find_own_ids(
        self,
        found_messages: Sequence[PostedMessage],
        found_statuses: Sequence[PostedStatus],
        peers: Collection[str],
    ) -> Mapping[str, str]:
        """Return our own ids, by those of the Cloud API, of the messages that these events name.

        peers: recipients who posted the events
        """
        wamids = [wamid for message in found_messages for wamid in message.named]
        wamids += [status.wamid for status in found_statuses if not status.own_id]
        own_ids = await self._list_own_ids(wamids)
        missing = [wamid for wamid in wamids if wamid not in own_ids]
        if missing:
            # An event may overtake the response to the post of the message that it names.
            await self.sender.wait_for_posts(peers)
            own_ids |= await self._list_own_ids(missing)
        return own_ids

    async def _list_own_ids(self, wamids: Sequence[str]) -> dict[str, str]:
        if not wamids:
            return {}
        rows = await self.context.database.query(
            lambda connection: upstream_ids.list_by_wamid(connection, self.context.account, list(dict.fromkeys(wamids)))
        )
        return {row.wamid: row.id for row in rows}

    def _derive(self, wamid: str) -> str:
        return inbound_ids.derive(self.context.account, wamid)

    @staticmethod
    def _own_id(status: PostedStatus, own_ids: Mapping[str, str]) -> str:
        return status.own_id or own_ids.get(status.wamid, "")

    async def _load(self, about: Sequence[str]) -> None:
        tracker = self.statuses.tracker
        missing = [message_id for message_id in about if message_id not in tracker]
        if missing:
            load = functools.partial(messages.list_progress, account=self.context.account, ids=missing)
            tracker.load(await self.context.database.query(load))

    def _take_message(self, message: PostedMessage, own_ids: Mapping[str, str], effects: _Effects) -> None:
        context, tracker = self.context, self.statuses.tracker
        message_id = self._derive(message.wamid)
        if message_id in tracker:
            EVENTS.labels(core.MESSAGE_EVENT, "duplicate").inc()
            return
        try:
            content = message.content(own_ids, self._derive)
        except Unusable as unusable:
            self._drop(core.MESSAGE_EVENT, unusable)
            return
        shown = message.shown(content)
        milliseconds = message.timestamp * 1000
        statistics.received(shown.kind, context.account).inc()
        tracker.remember(message_id, message.sender, Status.RECEIVED, shown.kind)
        effects.new_messages.append(
            MessageRow(
                message_id,
                context.account,
                context.shard,
                message.sender,
                shown.kind,
                Status.RECEIVED,
                milliseconds,
                "",
            )
        )
        effects.ids.append(UpstreamId(context.account, message_id, message.wamid, milliseconds))
        if message.user_id:
            effects.standins += self.sender.standin_numbers.issue(message.sender, message.user_id)
        if message.sender in context.config.blocked:
            EVENTS.labels(core.MESSAGE_EVENT, "blocked").inc()
            return
        EVENTS.labels(core.MESSAGE_EVENT, "received").inc()
        if isinstance(shown.content, InboundSystem) and not events.posts_number_changes(context):
            return
        effects.last_message_at[message.sender] = max(milliseconds, effects.last_message_at.get(message.sender, 0))
        effects.unread.append(UnreadMessage(context.account, message.sender, message_id, milliseconds))
        if self.media.downloads.wants(shown):
            effects.downloads.append(self.media.downloads.make(message_id, message.sender, milliseconds, content))
            return
        effects.callbacks += events.inbound(context, message_id, message.sender, message.timestamp, shown)

    def _take_status(self, status: PostedStatus, own_ids: Mapping[str, str], effects: _Effects) -> None:
        message_id, tracker = self._own_id(status, own_ids), self.statuses.tracker
        if not message_id or message_id not in tracker or tracker.held(message_id).status is Status.RECEIVED:
            # A message that was sent before the number belonged to this installation, or long ago.
            EVENTS.labels(core.STATUS_EVENT, "unknown").inc()
            return
        job = self.sender.end_by_status(message_id, tracker.held(message_id).peer)
        if job is not None:
            effects.settled.append(job)
            effects.ids.append(self.sender.ids_of(message_id, status.wamid))
        if status.code == UNDELIVERABLE:
            effects.invalid.append(tracker.held(message_id).peer)
        reached = (message_id, status.reached, status.timestamp, status.error)
        report = self.statuses.reports.report([reached], described=lambda step: _described(status, step))
        EVENTS.labels(core.STATUS_EVENT, "noted" if report.statuses else "duplicate").inc()
        effects.statuses |= report.statuses
        effects.failures |= report.failures
        effects.callbacks += report.callbacks

    def _take_error(self, error: tuple[int, str], effects: _Effects) -> None:
        EVENTS.labels(core.ERROR_EVENT, "received").inc()
        log.warning("upstream.error", extra={"code": error[0], "error": error[1]})
        if self.context.config.posts_v1:
            now = self.context.now()
            body = bodies.errors(*error)
            effects.callbacks.append(self.context.callback(f"upstream:{now}", "error", body, at=now))

    async def _write(self, effects: _Effects) -> None:
        """Commit the effects, and what concurrent posts of the same events have put into the journal before."""
        context, contacts = self.context, self.peers.contacts
        ended = [job.id for job in effects.settled]
        committed = context.journal.put(
            Change(
                context.account,
                new_messages=effects.new_messages,
                finished_jobs=ended,
                failures=self.sender.failures.ended(ended) if ended else None,
                statuses=effects.statuses,
                failed_messages=effects.failures,
                last_message_at=effects.last_message_at,
                unread_messages=effects.unread,
                new_callbacks=effects.callbacks,
                new_downloads=effects.downloads,
                checked_contacts=[
                    *contacts.record_registered(effects.last_message_at),
                    *contacts.record_unregistered(effects.invalid),
                ],
                new_upstream_ids=effects.ids,
                new_standins=effects.standins,
                moved_standins=effects.moved,
            ),
            urgent=True,
        )
        if ended:
            context.count.remove(len(ended))
            committed.add_done_callback(lambda _: self.statuses.tracker.release(ended))
        await committed
        if context.journal.broken.done():
            # An earlier commit of the same events may have been refused, which this one does not repeat.
            context.journal.broken.result()
        crashpoints.reach(crashpoints.AFTER_ROW_BEFORE_NETWORK_ACK)
        if effects.last_message_at:
            self.peers.window.record(effects.last_message_at)
        if effects.downloads:
            self.media.downloads.offer(effects.downloads)


def _described(status: PostedStatus, step: Status) -> Mapping[str, object]:
    """Return the conversation and the pricing to show with a status: with the one that named them only."""
    return status.pricing if step is status.reached else {}
