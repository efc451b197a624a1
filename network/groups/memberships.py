"""Groups that messages are addressed to: their participants, permission to send, and recipients of copies."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Collection, Mapping

from tidings.storage.database import Connection
from tidings.storage.network import groups
from tidings.storage.network.groups import Chat
from tidings.wire import device

# Participants of all groups together, about 150 bytes each.
REMEMBERED = 200_000
# Assumed participants of a group that is not cached.
TYPICAL_SIZE = 64


@dataclasses.dataclass(slots=True)
class KnownGroup:
    """Group in the cache."""

    epoch: int
    # Participants in that epoch.
    numbers: Collection[str]
    # Hash of the group's row at the latest message of the epoch on this node; `None` before the first message.
    row: int | None = None


class Memberships:
    """Cache of participants, in the order in which they joined, valid for one epoch of each group.

    The least recently used groups are dropped.
    """

    def __init__(self, remembered: int = REMEMBERED) -> None:
        """remembered: participants of all groups together."""
        self._limit = remembered
        self._size = 0
        self._known: OrderedDict[str, KnownGroup] = OrderedDict()

    def size_of(self, id: str) -> int:
        """Return the approximate number of participants."""
        known = self._known.get(id)
        return len(known.numbers) if known is not None else TYPICAL_SIZE

    def has_changed(self, chat: Chat) -> bool:
        """Return whether a group may have changed since the latest message to it that `note_message` recorded."""
        known = self._known.get(chat.id)
        return known is None or known.row != hash(chat)

    def note_message(self, chat: Chat) -> None:
        """Record a message to a group.

        chat: the group in the message's transaction, which has committed.
        """
        known = self._known.get(chat.id)
        if known is not None and known.epoch == chat.epoch:
            known.row = hash(chat)

    async def list(self, connection: Connection, chats: Mapping[str, Chat]) -> dict[str, Collection[str]]:
        """Return the participants of each group. The transaction must have locked their rows: the epoch changes with
        the members.
        """
        found: dict[str, Collection[str]] = {}
        for id_, chat in chats.items():
            known = self._known.get(id_)
            if known is not None and known.epoch == chat.epoch:
                self._known.move_to_end(id_)
                found[id_] = known.numbers
        missing = chats.keys() - found.keys()
        if missing:
            for id_, members in (await groups.list_members(connection, missing)).items():
                found[id_] = numbers = dict.fromkeys(member.number for member in members).keys()
                self._remember(id_, chats[id_].epoch, numbers)
        return found

    def _remember(self, id: str, epoch: int, numbers: Collection[str]) -> None:
        if former := self._known.pop(id, None):
            self._size -= len(former.numbers)
        self._known[id] = KnownGroup(epoch, numbers)
        self._size += len(numbers)
        while self._size > self._limit:
            _, forgotten = self._known.popitem(last=False)
            self._size -= len(forgotten.numbers)


@dataclasses.dataclass(frozen=True, slots=True)
class AddressedGroup:
    """Group that a message is addressed to."""

    chat: Chat
    members: Collection[str]
    blocks: Mapping[str, Collection[str]]  # By member, the numbers that it blocks; without members that block none.


def find_refusal(frame: device.Send, group: AddressedGroup | None) -> tuple[str, str]:
    """Return the reason and the detail of a refusal, both empty when the message is accepted."""
    if group is None:
        return device.NO_SUCH_GROUP, ""
    if frame.sender not in group.members:
        return device.NOT_PARTICIPANT, ""
    if frame.epoch != group.chat.epoch:
        return device.STALE_GROUP, f"the epoch of the group is {group.chat.epoch}"
    return "", ""


def readers(frame: device.Send, group: AddressedGroup) -> list[str]:
    """Return the members that get a copy: all but the author and those who have blocked the author."""
    nobody: Collection[str] = ()
    blocks = group.blocks
    return [
        number for number in group.members if number != frame.sender and frame.sender not in blocks.get(number, nobody)
    ]
