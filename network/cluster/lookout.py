"""What is stored here for devices that are attached elsewhere: their nodes are told to look, after the commit.

What comes later for the same device must not overtake it. So nothing is given to that node from the moment that
something sets out for the mailbox until the word about it is on its way: on the same link, and before all that
follows.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence

from network.cluster import frames
from network.cluster.frames import Claims
from network.cluster.membership import Membership
from network.cluster.outbox import Outbox
from network.cluster.presence import Presence
from network.cluster.server import RedisAway
from network.cluster.whereabouts import Whereabouts
from network.routing.delivery_queue import Origin
from tidings.runtime.batcher import BatcherFull
from tidings.runtime.clock import Clock
from tidings.storage.network.mailbox import Envelope

# Numbers whose devices are looked for at a time after something was stored for them, and that may wait for it.
LOOKS, MAX_LOOKS = 1000, 100_000

_EVERYTHING: Sequence[Envelope] = ()


class StoredOrigin:
    """The sender of an envelope that is stored here. ended(): called once, when it is told what became of it."""

    __slots__ = ("_ended", "_origin")

    def __init__(self, origin: Origin, ended: Callable[[], None]) -> None:
        self._origin = origin
        self._ended = ended

    def accepted(self, n: int) -> None:
        self._ended()
        self._origin.accepted(n)

    def refused(self, n: int, reason: str, detail: str = "", retry_after: int = 0) -> None:
        self._ended()
        self._origin.refused(n, reason, detail, retry_after)

    def superseded(self, n: int) -> None:
        self._ended()
        self._origin.superseded(n)


class Lookout:
    """Numbers for which something was stored here, or is being, of which the node of their device does not know.

    look_here(number): the device is attached here: look into its mailbox.
    lost_track:        something was stored whose recipient could not be looked for.
    """

    def __init__(
        self,
        membership: Membership,
        presence: Presence,
        outbox: Outbox,
        *,
        whereabouts: Whereabouts,
        clock: Clock,
        patience: float,
        look_here: Callable[[str], None],
    ) -> None:
        """patience: seconds that anything waits behind what is stored; then it is stored, too."""
        self._membership = membership
        self._presence = presence
        self._outbox = outbox
        self._whereabouts = whereabouts
        self._clock = clock
        self._patience = patience
        self._look_here = look_here
        # By number, the rows where all of them are known.
        self._stored: dict[str, Sequence[Envelope]] = {}
        # How much of a number's is being stored, or has yet to be told of.
        self._untold: dict[str, int] = {}
        # Who waits until there is nothing of the kind, and until when.
        self._waiting: dict[str, tuple[asyncio.Future[bool], float]] = {}
        # Nodes that know of everything that was stored here, or will before anything else that they get from here.
        self._informed: set[str] = set()
        # Nodes that did not get such a word: they are to look into all mailboxes.
        self._blind: set[str] = set()
        self._looking: asyncio.Task[None] | None = None
        self.lost_track = False

    # What is stored.

    def storing(self, number: str, origin: Origin) -> Origin:
        """Something sets out for the mailbox; to be answered is who is returned."""
        self._begin(number)
        return StoredOrigin(origin, functools.partial(self._end, number))

    def stored(self, number: str, rows: Iterable[Envelope] = ()) -> None:
        """It is there. rows: what, where it is known; their order with others does not matter."""
        is_known = number in self._stored
        if not self._membership.in_touch or (not is_known and len(self._stored) >= MAX_LOOKS):
            self.lost_track = True
            return
        found = tuple(rows)
        if not found:
            if not is_known or self._stored[number]:
                self._begin(number)
            self._stored[number] = _EVERYTHING
        elif not is_known or self._stored[number]:
            self._stored[number] = (*self._stored.get(number, ()), *found)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look(), name="look")

    # What comes behind it.

    def is_behind(self, number: str) -> bool:
        """Would anything for this number overtake what is stored for it?"""
        return number in self._untold

    def is_blind(self, node: str) -> bool:
        """The same of anything for a device there. A node that was not there for a while is told to look first."""
        if node not in self._informed and node not in self._blind and not self.lost_track:
            self._tell_to_look_at_all([node])
        return self.lost_track or node in self._blind

    def joined(self) -> None:
        """Note that this node has joined those that are there, and has stored nothing yet."""
        self._informed = set(self._membership.nodes)

    def gone(self, nodes: Iterable[str]) -> None:
        """Note that these nodes are gone: when they are back, they have missed what was stored."""
        self._informed.difference_update(nodes)

    def settled(self, number: str) -> asyncio.Future[bool]:
        """Done when nothing for this number would overtake anything, and false when it has waited for too long.

        Call it when it `is_behind`, or when something for it is on its way into the mailbox."""
        waiting = self._waiting.get(number)
        if waiting is None:
            due = self._clock.monotonic() + self._patience
            waiting = self._waiting[number] = asyncio.get_running_loop().create_future(), due
        return waiting[0]

    def _begin(self, number: str) -> None:
        self._untold[number] = self._untold.get(number, 0) + 1

    def _end(self, number: str) -> None:
        left = self._untold[number] - 1
        if left:
            self._untold[number] = left
            return
        del self._untold[number]
        self._settle(number)

    def _settle(self, number: str) -> None:
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting[0].set_result(True)

    # Words to nodes.

    async def _look(self) -> None:
        try:
            while self._stored:
                numbers = list(self._stored)[:LOOKS]
                rows = {number: self._stored.pop(number) for number in numbers}
                try:
                    found = await self._presence.find_all(numbers)
                except (RedisAway, BatcherFull):
                    self.lost_track = True
                    found = {}
                for number, claims in found.items():
                    self._whereabouts.learn(number, claims)
                    self._give(number, claims, rows[number])
                self._told(rows)
        finally:
            self._looking = None

    def _told(self, looked: Mapping[str, Sequence[Envelope]]) -> None:
        for number, rows in looked.items():
            if not rows:
                self._end(number)
            elif number not in self._untold:
                self._settle(number)

    def _give(self, number: str, claims: Claims, rows: Sequence[Envelope]) -> None:
        for node in {claim.node for claim in claims.values()}:
            if node == self._membership.me:
                # It came meanwhile.
                self._look_here(number)
            elif not self._outbox.put(node, frames.Look(number, list(rows))):
                self.unsent(node)

    def unsent(self, node: str) -> None:
        """Such a word has not reached this node."""
        self._informed.discard(node)
        self._blind.add(node)

    def sweep(self) -> None:
        """Let nobody wait for too long; say again what was not heard. Call it about ten times a second."""
        now = self._clock.monotonic()
        while self._waiting:
            number, (waiting, due) = next(iter(self._waiting.items()))
            if due > now:
                break
            del self._waiting[number]
            waiting.set_result(False)
        if self._blind and self._membership.in_touch:
            # Those that are gone meanwhile need not.
            self._blind &= self._membership.nodes
            self._informed &= self._membership.nodes
            self._tell_to_look_at_all(list(self._blind))

    def tell_all(self) -> None:
        """Let every other node look into all mailboxes: those that are back later, before they get anything."""
        self._informed.clear()
        self._tell_to_look_at_all([node for node in self._membership.nodes if node != self._membership.me])

    def _tell_to_look_at_all(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            if self._outbox.put(node, frames.LookAtAll()):
                self._blind.discard(node)
                self._informed.add(node)
            else:
                self.unsent(node)
