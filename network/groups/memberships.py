"""Cache of the participants of groups, valid for one epoch of each group."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping

from tidings.storage.database import Connection
from tidings.storage.network import groups
from tidings.storage.network.groups import Chat

# Participants of all groups together, about 150 bytes each.
REMEMBERED = 200_000
# Assumed participants of a group that is not cached.
TYPICAL = 64


class Memberships:
    """Participants of groups, in the order in which they joined. The least recently used are dropped."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        """remembered: participants of all groups together."""
        self._limit = remembered
        self._size = 0
        # By group id: its epoch, and its participants in that epoch.
        self._known: OrderedDict[str, tuple[int, Collection[str]]] = OrderedDict()

    def size_of(self, id: str) -> int:
        """Return the approximate number of participants."""
        known = self._known.get(id)
        return len(known[1]) if known is not None else TYPICAL

    async def list(self, connection: Connection, chats: Mapping[str, Chat]) -> dict[str, Collection[str]]:
        """Return the participants of each group. The transaction must have locked their rows: the epoch changes with
        the members.
        """
        found: dict[str, Collection[str]] = {}
        for id_, chat in chats.items():
            known = self._known.get(id_)
            if known is not None and known[0] == chat.epoch:
                self._known.move_to_end(id_)
                found[id_] = known[1]
        missing = chats.keys() - found.keys()
        if missing:
            for id_, members in (await groups.list_members(connection, missing)).items():
                found[id_] = numbers = dict.fromkeys(member.number for member in members).keys()
                self._remember(id_, chats[id_].epoch, numbers)
        return found

    def _remember(self, id: str, epoch: int, numbers: Collection[str]) -> None:
        if former := self._known.pop(id, None):
            self._size -= len(former[1])
        self._known[id] = epoch, numbers
        self._size += len(numbers)
        while self._size > self._limit:
            _, (_, forgotten) = self._known.popitem(last=False)
            self._size -= len(forgotten)
