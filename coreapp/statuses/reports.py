"""Creation of the rows for a reached status: the status itself and its callbacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from coreapp import statistics
from coreapp.context import ShardContext
from coreapp.conversations import Conversation, conversation_of, origin_of
from coreapp.statuses.tracker import StatusTracker, TrackedMessage
from coreapp.webhook import bodies, events
from coreapp.webhook.cloud.statuses import ReportedStatus
from coreapp.webhook.wiring import Webhook
from tidings.observability.tracing import TRACES
from tidings.storage.business import callbacks
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.messages import Status
from tidings.testing import numbers
from tidings.testing.numbers import TestKind
from tidings.wire import addresses, ids

# message id, status reached, Unix seconds or `None` for now, error code and details for `FAILED`
Reached = tuple[str, Status, int | None, tuple[int, str] | None]


@dataclasses.dataclass(frozen=True, slots=True)
class StatusRows:
    """Rows to write for the reached statuses."""

    statuses: dict[str, Status]
    callbacks: list[Callback]
    failures: dict[str, int]  # by message id: code of the failure


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class StatusReports:
    """Reports of reached statuses. The messages must be held by the tracker; unknown ones report nothing."""

    context: ShardContext
    tracker: StatusTracker
    webhook: Webhook

    def report(
        self, events: Iterable[Reached], described: Callable[[Status], Mapping[str, Any]] | None = None
    ) -> StatusRows:
        """Return the rows for these events in their order; each status of a message at most once.

        described: returns the conversation and the pricing that webhooks of v1 show with a status; None for our own
        """
        now = self.context.clock.now()
        at = int(now * 1000)
        report = StatusRows({}, [], {})
        for message_id, reached, timestamp, error in events:
            steps = self.tracker.advance(message_id, reached)
            if not steps:
                continue
            report.statuses[message_id] = steps[-1]
            if error is not None:
                report.failures[message_id] = error[0]
            message, accepted_at = self.tracker.held(message_id), ids.made_at(message_id) or now
            for step in steps:
                statistics.reached(step, message.kind, now - accepted_at, self.context.account)
            for step in self._in_order_of_posting(steps, message.peer):
                if self.is_posted(step):
                    conversation = self._conversation_of(message, step, accepted_at) if described is None else None
                    shown = self._shown(described(step)) if described is not None else None
                    body = bodies.status(
                        message_id, message.peer, step, int(timestamp or now), error, conversation, priced=shown
                    )
                    event = callbacks.status_event(message_id, message.peer, int(step))
                    report.callbacks.append(self.callback(message_id, body, at, event))
                if self.context.config.cloud is not None and not self._is_dropped():
                    report.callbacks.extend(self._cloud(message_id, step, int(timestamp or now), error, at=at))
        return report

    def _shown(self, described: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the conversation and the pricing, unless the business does not want them."""
        return described if self.context.config.preferences().conversations else {}

    def _in_order_of_posting(self, steps: Sequence[Status], peer: str) -> Sequence[Status]:
        """Return the statuses to post when these were reached.

        They are those reached, except for test numbers whose `delivered` is posted before `sent`: these post nothing
        for `sent`, and both statuses for `delivered`.
        """
        if not self.context.settings.testing or numbers.kind_of(peer) is not TestKind.REORDERS:
            return steps
        order: list[Status] = []
        for step in steps:
            if step is Status.DELIVERED:
                order += (Status.DELIVERED, Status.SENT)
            elif step is not Status.SENT:
                order.append(step)
        return order

    def _cloud(
        self, message_id: str, step: Status, timestamp: int, error: tuple[int, str] | None, *, at: int
    ) -> Sequence[Callback]:
        """Return the callback of the Cloud API about one status of a message that the tracker holds.

        timestamp: Unix seconds
        at: time of the report, Unix milliseconds
        """
        message = self.tracker.held(message_id)
        status = ReportedStatus(
            message_id=message_id,
            recipient=message.peer,
            reached=step,
            timestamp=timestamp,
            kind=message.kind,
            category=message.category,
            callback_data=message.callback_data,
            error=error,
        )
        made = events.cloud_status(self.context, status, request_id=message.request_id, at=at)
        if made is None:
            return ()
        made.delay(self.webhook.delay.due_for(message_id, message.peer, at, made.subject))
        if TRACES.tracer is not None:
            made.traceparent = message.traceparent
        return (made,)

    def is_posted(self, step: Status) -> bool:
        """Return whether the webhook of v1 gets this status. Counts a wanted status that is dropped because the
        callback queue is full.
        """
        config = self.context.config
        return config.posts_v1 and config.preferences().wants(step) and not self._is_dropped()

    def _is_dropped(self) -> bool:
        """Return whether the callback queue has no room for a status; if so, count the status as dropped."""
        if not self.webhook.admission.is_full():
            return False
        self.webhook.admission.drop()
        return True

    def callback(self, message_id: str, body: bytes, now: int, event: str) -> Callback:
        """Return the callback about one status of a message that the tracker holds.

        now: time of the report, Unix milliseconds
        event: event id, from `callbacks.status_event`
        """
        message = self.tracker.held(message_id)
        made = self.context.callback(
            message_id,
            "status_change",
            body,
            recipient=message.peer,
            request_id=message.request_id,
            at=now,
            due_at=self.webhook.delay.due_for(message_id, message.peer, now),
        )
        made.event = event
        if TRACES.tracer is not None:
            made.traceparent = message.traceparent
        return made

    def _conversation_of(self, message: TrackedMessage, step: Status, accepted_at: float) -> Conversation | None:
        """Return the conversation for a status: for `sent`, and for the first status after it that is posted; None for
        others.
        """
        preferences = self.context.config.preferences()
        if not preferences.conversations:
            return None
        second = Status.DELIVERED if preferences.wants(Status.DELIVERED) else Status.READ
        if step is second and message.conversation is not None:
            named, message.conversation = message.conversation, None
            return named
        if step not in (Status.SENT, second) or addresses.names_group(message.peer):
            return None
        origin = origin_of(message.kind, message.category, self.context.settings.conversations)
        found = conversation_of(self.context.account, message.peer, origin, accepted_at)
        if step is Status.SENT:
            message.conversation = found
        return found
