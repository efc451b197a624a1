"""What one batch of the mailroom is about: which deliveries are new, and what must be read for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handset.receiving import RECEIVED, Arrival, Digest, Outgoing, PeerKey, Step
from handset.seen import Key, Seen
from tidings import e2ee
from tidings.wire import device as wire

# `None` stands for the chores.
Item = Arrival | Outgoing | Step | None


def not_seen(items: Sequence[Item], seen: Seen) -> dict[Key, Arrival]:
    """The first delivery of each message that memory does not know."""
    fresh: dict[Key, Arrival] = {}
    for item in items:
        if not isinstance(item, Arrival):
            continue
        key = (item.device.number, item.frame.sender, item.frame.id)
        first = fresh.get(key)
        if first is not None:
            first.attempt += 1
            RECEIVED.labels("duplicate").inc()
        elif key in seen:
            RECEIVED.labels("duplicate").inc()
        else:
            fresh[key] = item
    return fresh


def peers_of(arrivals: Iterable[Arrival], items: Sequence[Item]) -> set[PeerKey]:
    """Whose sessions this is about."""
    by_keys = (wire.MESSAGE, wire.PREKEY, wire.IDENTITY)
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
