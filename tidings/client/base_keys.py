"""Decisions about first messages that used no one-time pre-key: each may open a session once.

A one-time pre-key is deleted with the session that it opened, so its first message cannot open another. Without one,
the network could deliver the same first message again after its session has left the record (X3DH section 4.2, PQXDH
section 4.2). So the base keys of those that were accepted are kept as long as the signed pre-key that they used.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from prometheus_client import Counter

from tidings import e2ee

# Base keys of one peer, and of all peers of a number.
EACH = 1_000
TOGETHER = 1_000_000

REFUSED = Counter(
    "tidings_set_ups_refused_total", "First messages without a one-time pre-key that opened no session", ["reason"]
)


def name_of(first: e2ee.PreKeySignalMessage) -> str | None:
    """The base key as it is kept; `None` for a message that a one-time pre-key protects already."""
    return first.base_key[1:].hex() if first.prekey_id is None else None


@dataclasses.dataclass(slots=True)
class AcceptedBaseKeys:
    """What is known about the first messages of one batch to one number.

    known:   those of their base keys that are kept. counts: how many are kept, by peer; total: of all peers.
    """

    known: set[str] = dataclasses.field(default_factory=set)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    total: int = 0

    def load(self, known: Iterable[str], counts: Mapping[str, int], total: int) -> None:
        """Begin a batch."""
        self.known, self.counts, self.total = set(known), dict(counts), total

    def check(self, peer: str, first: e2ee.PreKeySignalMessage) -> None:
        """Whether a message may open a session. Raises `e2ee.KnownBaseKey` and `e2ee.TooManySetUps`."""
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
        """A message has opened a session; the base key to be kept in the same transaction, `None` for none."""
        name = name_of(first)
        if name is not None:
            self.known.add(name)
            self.counts[peer] = self.counts.get(peer, 0) + 1
            self.total += 1
        return name
