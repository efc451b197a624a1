"""Decisions about first messages that used no one-time pre-key: each may open a session once.

A one-time pre-key is deleted when it has opened a session, so its first message cannot open another. Without one, the
network could replay a first message after its session has left the record (X3DH section 4.2, PQXDH section 4.2).
Therefore the base keys of accepted first messages are kept as long as the signed pre-key that they used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from prometheus_client import Counter

from tidings import e2ee
from tidings.e2ee import curve

# Maximum number of base keys that are kept of one peer, and of all peers of a number.
EACH = 1_000
TOGETHER = 1_000_000

REFUSED = Counter(
    "tidings_set_ups_refused_total", "First messages without a one-time pre-key that were refused", ["reason"]
)


def name_of(first: e2ee.PreKeySignalMessage) -> str | None:
    """Return the stored form of a message's base key; `None` if the message used a one-time pre-key.

    It is the same for base keys that open the same session. Raises `e2ee.InvalidKey`.
    """
    return curve.identify(first.base_key).hex() if first.prekey_id is None else None


@dataclasses.dataclass(slots=True)
class AcceptedBaseKeys:
    """Base keys of accepted first messages to one number, as far as they concern one batch."""

    # Base keys of the batch that were accepted before.
    known: set[str] = dataclasses.field(default_factory=set)
    # Numbers of accepted base keys, by peer.
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    # Number of accepted base keys of all peers.
    total: int = 0

    def load(self, known: Iterable[str], counts: Mapping[str, int], total: int) -> None:
        """Set the state for a new batch."""
        self.known, self.counts, self.total = set(known), dict(counts), total

    def check(self, peer: str, first: e2ee.PreKeySignalMessage) -> None:
        """Require that a message may open a session. Raises `e2ee.KnownBaseKey` and `e2ee.TooManySetUps`."""
        name = name_of(first)
        if name is None:
            return
        if name in self.known:
            REFUSED.labels("known").inc()
            raise e2ee.KnownBaseKey("a session with this base key was opened before, and is not kept")
        if self.counts.get(peer, 0) >= EACH or self.total >= TOGETHER:
            REFUSED.labels("full").inc()
            raise e2ee.TooManySetUps("too many sessions were opened without a one-time pre-key")

    def accept(self, peer: str, first: e2ee.PreKeySignalMessage) -> str | None:
        """Record that a message has opened a session.

        Returns the base key to store in the same transaction; `None` if the message used a one-time pre-key.
        """
        name = name_of(first)
        if name is not None:
            self.known.add(name)
            self.counts[peer] = self.counts.get(peer, 0) + 1
            self.total += 1
        return name
