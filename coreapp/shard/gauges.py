"""Gauges of a shard's present state. They are read at each scrape, so messages bear no cost for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client import Gauge

from coreapp import statistics
from coreapp.shard.shard import Shard
from tidings.aio import queues
from tidings.aio.queues import QUEUES, QueueReading

_LABELS = ("shard", "number")  # number of the business


def _gauge(name: str, text: str, read: Callable[[Shard], float]) -> tuple[Gauge, Callable[[Shard], float]]:
    return Gauge(name, text, _LABELS), read


_NUMBER = Gauge("tidings_shard_number", "1: names the number that a shard belongs to", _LABELS)
_LIMIT = Gauge("tidings_queue_limit", "Limit of the queue, in items; above it messages are refused", queues.LABELS)
_LIMITED = ("jobs", "callbacks")
_GAUGES = (
    _gauge(
        "tidings_job_queue_size",
        "Messages accepted and not yet stored by the network",
        lambda shard: shard.context.count(),
    ),
    _gauge(
        "callback_queue_size",
        "Callbacks that wait for the webhook, in memory and in the database",
        lambda shard: len(shard.webhook.queue),
    ),
    _gauge(
        "tidings_callbacks_held",
        "Queued callbacks that wait until the client has the id of their message",
        lambda shard: shard.webhook.queue.held,
    ),
    _gauge(
        "tidings_callbacks_failing",
        "Callbacks in memory that wait for another attempt",
        lambda shard: shard.webhook.queue.failing,
    ),
    _gauge(
        "tidings_callbacks_from_recipients",
        "Queued callbacks caused by recipients",
        lambda shard: shard.webhook.queue.from_recipients,
    ),
    _gauge(
        "tidings_callback_age_seconds",
        "Seconds since the oldest callback that waits in memory was first due",
        lambda shard: shard.webhook.queue.age(),
    ),
    _gauge("tidings_upstream_connected", "1 while logged in to the network", lambda shard: shard.link.connected),
    _gauge(
        "tidings_registered_elsewhere",
        "1 while the network refuses the number's token: somebody else has registered the number",
        lambda shard: shard.link.is_refused,
    ),
    _gauge(
        "tidings_cloud_stopped",
        "1 while the real Cloud API accepts nothing of the number because of its credentials or registration",
        lambda shard: shard.is_stopped,
    ),
    _gauge(
        "tidings_messages_held_back",
        "Envelopes to recipients for whom the network accepts nothing more now",
        lambda shard: shard.sending.transmitter.kept_back,
    ),
    _gauge(
        "tidings_session_setups_waiting",
        "Recipients whose session is being loaded or opened",
        lambda shard: shard.sending.encryption.recipients,
    ),
    _gauge(
        "tidings_media_messages_waiting",
        "Messages that wait for a file, or behind a message that does",
        lambda shard: shard.media.preparation_queue.waiting,
    ),
    _gauge(
        "tidings_media_under_way",
        "Files that are being fetched or stored for messages",
        lambda shard: shard.media.preparation.under_way,
    ),
    _gauge(
        "tidings_media_downloads_waiting",
        "Recipients' files that wait for a download, in memory",
        lambda shard: shard.media.downloads.waiting,
    ),
    _gauge(
        "tidings_identities_unacknowledged",
        "Changed identities that wait for acknowledgement",
        lambda shard: shard.peers.identities.unacknowledged,
    ),
    _gauge(
        "tidings_group_messages_waiting",
        "Messages to groups that are not yet encrypted",
        lambda shard: shard.groups.sender.waiting,
    ),
    _gauge(
        "tidings_quarantined_items",
        "Messages to send and deliveries that are not handled again until they are released",
        lambda shard: len(shard.context.quarantine),
    ),
    _gauge(
        "tidings_undecrypted_messages",
        "Messages that could not be decrypted and were requested again",
        lambda shard: shard.recovery.recovering.waiting,
    ),
    _gauge(
        "in_messages_pending_processing",
        "Messages from recipients that are received and not yet on disk",
        lambda shard: shard.receiving.pending,
    ),
)


def publish(shard: Shard) -> None:
    """Export the gauges of this shard until `withdraw`."""
    labels = (str(shard.context.shard), shard.context.account)
    settings = shard.context.settings
    _NUMBER.labels(*labels).set(1)
    statistics.begin(shard.context.account)
    for queue, limit in zip(_LIMITED, (settings.job_queue_limit, settings.callback_queue_limit), strict=True):
        _LIMIT.labels(queue, *labels).set(limit)
    for gauge, read in _GAUGES:
        gauge.labels(*labels).set_function(functools.partial(read, shard))
    for queue, measure in _QUEUES.items():
        QUEUES.watch(queue, functools.partial(measure, shard), shard=labels[0], number=labels[1])


def withdraw(shard: Shard) -> None:
    """Remove the gauges of a shard that this process no longer owns."""
    labels = (str(shard.context.shard), shard.context.account)
    _NUMBER.remove(*labels)
    for queue in _LIMITED:
        _LIMIT.remove(queue, *labels)
    for gauge, _ in _GAUGES:
        gauge.remove(*labels)
    for queue in _QUEUES:
        QUEUES.remove(queue, shard=labels[0], number=labels[1])


def _jobs(shard: Shard) -> QueueReading:
    """Accepted messages that the network has not acknowledged, in all queues."""
    count, queues = shard.context.count, ("transmission", "encryption", "media", "groups")
    oldest = [*(_STAGES[name](shard).oldest for name in queues), shard.context.quarantine.oldest]
    return QueueReading(count(), count.left, _age(shard, oldest))


def _callbacks(shard: Shard) -> QueueReading:
    queue = shard.webhook.queue
    return QueueReading(len(queue), queue.left, queue.age())


class _Stage(Protocol):
    """Queue that jobs or files pass through."""

    @property
    def waiting(self) -> int: ...  # items in the queue

    @property
    def left(self) -> int: ...  # items that have left it

    @property
    def oldest(self) -> int | None: ...  # time of the oldest item, Unix milliseconds; None without items


_STAGES: Mapping[str, Callable[[Shard], _Stage]] = {
    "encryption": lambda shard: shard.sending.encryption,
    "transmission": lambda shard: shard.sending.transmitter,
    "media": lambda shard: shard.media.preparation_queue,
    "downloads": lambda shard: shard.media.downloads,
    "groups": lambda shard: shard.groups.sender,
}


def _stage(name: str, shard: Shard) -> QueueReading:
    stage = _STAGES[name](shard)
    return QueueReading(stage.waiting, stage.left, _age(shard, [stage.oldest]))


_QUEUES: Mapping[str, Callable[[Shard], QueueReading]] = {
    "jobs": _jobs,
    "callbacks": _callbacks,
    **{name: functools.partial(_stage, name) for name in _STAGES},
}


def _age(shard: Shard, times: Iterable[int | None]) -> float:
    """Return the seconds since the earliest of these times in Unix milliseconds; 0 for none."""
    oldest = min((time for time in times if time is not None), default=None)
    return 0.0 if oldest is None else max(0.0, shard.context.clock.now() - oldest / 1000)
