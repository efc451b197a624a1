"""What one batch of the mailroom is about: which deliveries are new, and what must be read for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handset.receiving.duplicates import Key, Seen
from handset.receiving.incoming import RECEIVED, Digest, PeerKey
from handset.receiving.items import Arrival, Outgoing, Step
from tidings import e2ee
from tidings.storage.database import Connection
from tidings.storage.handset import inbox
from tidings.wire import device as wire

# `None` stands for the chores.
Item = Arrival | Outgoing | Step | None


def not_seen(items: Sequence[Item], seen: Seen) -> dict[Key, Arrival]:
    """The first delivery of each message that memory does not know."""
    fresh: dict[Key, Arrival] = {}
    for item in items:
        if not isinstance(item, Arrival):
            continue
        key = key_of(item)
        first = fresh.get(key)
        if first is not None:
            first.attempt += 1
            RECEIVED.labels("duplicate").inc()
        elif key in seen and not is_repetition(item):
            RECEIVED.labels("duplicate").inc()
        else:
            fresh[key] = item
    return fresh


def key_of(arrival: Arrival) -> Key:
    """Under which the message in a delivery is known."""
    return arrival.device.number, arrival.frame.sender, arrival.frame.message_id


def is_repetition(arrival: Arrival) -> bool:
    """Does it repeat a message that was asked for again? Then that may be one that could not be decrypted."""
    return arrival.frame.message_id != arrival.frame.id


def peers_of(arrivals: Iterable[Arrival], items: Sequence[Item]) -> set[PeerKey]:
    """Whose sessions this is about."""
    by_keys = (wire.MESSAGE, wire.PREKEY, wire.IDENTITY, wire.RETRY)
    wanted = {(a.device.number, a.frame.sender) for a in arrivals if a.frame.kind in by_keys}
    wanted.update((item.device.number, item.peer) for item in items if isinstance(item, Outgoing))
    return wanted


def prekeys_of(arrivals: Iterable[Arrival], digest: Digest) -> set[tuple[str, int]]:
    """The pre-keys that first messages among these name, if they set a session up."""
    wanted: set[tuple[str, int]] = set()
    for arrival in arrivals:
        if arrival.frame.kind != wire.PREKEY:
            continue
        try:
            first = e2ee.PreKeySignalMessage.parse(arrival.frame.body)
        except e2ee.E2EEError:
            continue
        number = arrival.device.number
        record = digest.sessions.get((number, arrival.frame.sender))
        if record is None or record.remote_identity != first.identity_key or record.needs_setup(first):
            named = (first.signed_prekey_id, first.prekey_id, first.kyber_prekey_id)
            wanted.update((number, key_id) for key_id in named if key_id is not None)
    return wanted


def sender_keys_of(arrivals: Iterable[Arrival]) -> set[tuple[str, str, str]]:
    """The sender keys, by (number, group, sender), that messages to groups are read with."""
    return {(a.device.number, a.frame.group, a.frame.sender) for a in arrivals if a.frame.kind == wire.GROUP}


async def recognise(connection: Connection, fresh: dict[Key, Arrival], digest: Digest) -> None:
    """Leave of repetitions those of messages that could not be decrypted, or never came."""
    repeated = [key for key, arrival in fresh.items() if is_repetition(arrival)]
    if not repeated:
        return
    known = await inbox.list_kinds(connection, [key[2] for key in repeated])
    for key in repeated:
        kind, received_at = known.get(key, (inbox.UNREADABLE, None))
        if kind != inbox.UNREADABLE:
            RECEIVED.labels("duplicate").inc()
            del fresh[key]
        elif received_at is not None:
            digest.unreadable[key] = received_at
