"""Detection of duplicate deliveries by the number, sender and id of their message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import Counter

from handset.receiving.items import Delivery, Item, MessageKey
from tidings.storage.database import Connection
from tidings.storage.handset import inbox

RECEIVED = Counter("tidings_handset_messages_total", "Messages received", ["outcome"])


class RecentMessages:
    """The last `limit` keys of messages in the inbox, about 250 bytes each.

    While `complete`, the inbox has no others.
    """

    def __init__(self, newest_first: Iterable[MessageKey], limit: int) -> None:
        keys = list(newest_first)
        self.complete = len(keys) < limit
        self._limit = limit
        self._keys: dict[MessageKey, None] = dict.fromkeys(reversed(keys[:limit]))

    def __contains__(self, key: MessageKey) -> bool:
        return key in self._keys

    def add(self, key: MessageKey) -> None:
        self._keys[key] = None
        if len(self._keys) > self._limit:
            del self._keys[next(iter(self._keys))]
            self.complete = False


async def list_new(
    connection: Connection, items: Sequence[Item], recent: RecentMessages
) -> tuple[dict[MessageKey, Delivery], Mapping[MessageKey, int]]:
    """Return the first delivery of each message that is not in the inbox, or is there as undecryptable.

    Also returns the times at which the latter were first received, in Unix milliseconds.
    """
    new = _not_recent(items, recent)
    if new and not recent.complete:
        ids = [key[2] for key, delivery in new.items() if not delivery.is_repetition]
        for key in await inbox.list_known(connection, ids):
            if key in new and not new[key].is_repetition:
                del new[key]
    undecrypted: dict[MessageKey, int] = {}
    repeated = [key for key, delivery in new.items() if delivery.is_repetition]
    if repeated:
        known = await inbox.list_kinds(connection, [key[2] for key in repeated])
        for key in repeated:
            kind, received_at = known.get(key, (inbox.UNREADABLE, None))
            if kind != inbox.UNREADABLE:
                RECEIVED.labels("duplicate").inc()
                del new[key]
            elif received_at is not None:
                undecrypted[key] = received_at
    return new, undecrypted


def _not_recent(items: Sequence[Item], recent: RecentMessages) -> dict[MessageKey, Delivery]:
    new: dict[MessageKey, Delivery] = {}
    for item in items:
        if not isinstance(item, Delivery):
            continue
        key = item.key
        first = new.get(key)
        if first is not None:
            first.attempt += 1
            RECEIVED.labels("duplicate").inc()
        elif key in recent and not item.is_repetition:
            RECEIVED.labels("duplicate").inc()
        else:
            new[key] = item
    return new
