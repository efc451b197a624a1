"""Steps of one message, from its times and its callbacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tidings.storage.business import queue_views
from tidings.storage.business.callback_views import DONE, PENDING, CallbackEntry
from tidings.storage.business.message_views import MessageTimeline, MessageView
from tidings.storage.business.messages import Status
from tidings.storage.business.queue_views import JobView
from tidings.wire import codes, ids


@dataclasses.dataclass(frozen=True, slots=True)
class TimelineStep:
    """One step of a message."""

    name: str  # name in the table `timeline` of `strings.toml`
    at: int | None = None  # Unix milliseconds; None when it was not recorded
    detail: str = ""
    is_failure: bool = False
    seq: int = 0  # `seq` of the callback that the step is about; 0 for none
    code: int | None = None  # code of the failure


def steps(timeline: MessageTimeline, jobs: Sequence[JobView], callbacks: Sequence[CallbackEntry]) -> list[TimelineStep]:
    """Return the steps of a message, and then its callbacks, oldest first.

    jobs: the job of the message, if it has one
    callbacks: callbacks about the message, newest first
    """
    message = timeline.message
    found = _of_received(message) if is_received(message) else _of_sent(timeline, jobs)
    return [*found, *(_of_callback(one) for one in reversed(callbacks))]


def is_received(message: MessageView) -> bool:
    """Return whether a message is one of a recipient to the business."""
    return message.status in (Status.RECEIVED, Status.MARKED_READ)


def _of_received(message: MessageView) -> list[TimelineStep]:
    found = [TimelineStep("received", message.stored_at)]
    return [*found, TimelineStep("marked_read", message.read_at)] if message.status == Status.MARKED_READ else found


def _of_sent(timeline: MessageTimeline, jobs: Sequence[JobView]) -> list[TimelineStep]:
    message = timeline.message
    made = ids.made_at(message.id)
    found = [TimelineStep("accepted", int(made * 1000))] if made is not None else []
    found.append(TimelineStep("stored", message.stored_at))
    is_encrypted = message.encrypted_at is not None or Status.SENT <= message.status <= Status.READ
    if is_encrypted or any(job.status == queue_views.ENCRYPTED for job in jobs):
        # Without a time of its own, though times are kept, it was encrypted when it was accepted.
        at_once = message.stored_at if message.sent_at is not None else None
        found.append(TimelineStep("encrypted", message.encrypted_at or at_once))
    if timeline.is_waiting:
        found.append(TimelineStep("waiting"))
    for job in jobs:
        if job.attempts:
            detail = f"{job.attempts} × {job.last_error}"
            found.append(TimelineStep("attempt_failed", job.tried_at, detail, is_failure=True))
    times = {Status.SENT: message.sent_at, Status.DELIVERED: message.delivered_at, Status.READ: message.read_at}
    for status, at in times.items():
        if at is not None or status <= message.status <= Status.READ:
            found.append(TimelineStep(status.name.lower(), at))
    if message.status == Status.FAILED:
        code = message.failure
        detail = codes.find(code).title if code is not None else ""
        found.append(TimelineStep("failed", message.failed_at, detail, is_failure=True, code=code))
    return found


def _of_callback(callback: CallbackEntry) -> TimelineStep:
    ended = callback.tried_at is not None and callback.took is not None
    return TimelineStep(
        f"callback_{callback.state.replace(' ', '_')}",
        (callback.tried_at or 0) + (callback.took or 0) if ended else callback.created_at,
        callback.event_id,
        is_failure=callback.state not in (PENDING, DONE),
        seq=callback.seq,
    )
