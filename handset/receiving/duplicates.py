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
) -> tuple[list[Delivery], Mapping[MessageKey, int]]:
    """Return the first delivery of each envelope whose message is not in the inbox, or is there as undecryptable.

    Several of them may repeat one message, because not each repetition can be decrypted.
    Also returns the times at which undecryptable messages were first received, in Unix milliseconds.
    """
    new = _not_recent(items, recent)
    undecrypted: dict[MessageKey, int] = {}
    if new and not recent.complete:
        known = await inbox.list_known(connection, [delivery.key[2] for delivery in new if not delivery.is_repetition])
        new = [delivery for delivery in new if delivery.is_repetition or delivery.key not in known]
    repeated = {delivery.key for delivery in new if delivery.is_repetition}
    if repeated:
        kinds = await inbox.list_kinds(connection, [key[2] for key in repeated])
        undecrypted = {key: kinds[key][1] for key in repeated & kinds.keys() if kinds[key][0] == inbox.UNREADABLE}
        read = repeated & kinds.keys() - undecrypted.keys()
        RECEIVED.labels("duplicate").inc(sum(delivery.key in read for delivery in new))
        new = [delivery for delivery in new if delivery.key not in read]
    return new, undecrypted


def _not_recent(items: Sequence[Item], recent: RecentMessages) -> list[Delivery]:
    new: dict[tuple[MessageKey, str], Delivery] = {}
    for item in items:
        if not isinstance(item, Delivery):
            continue
        envelope = (item.key, item.frame.id)
        first = new.get(envelope)
        if first is not None:
            first.attempt += 1
            RECEIVED.labels("duplicate").inc()
        elif item.key in recent and not item.is_repetition:
            RECEIVED.labels("duplicate").inc()
        else:
            new[envelope] = item
    return list(new.values())
