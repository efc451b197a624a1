"""Groups that messages are addressed to: permission to send, and recipients of copies."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from tidings.storage.network.groups import Chat
from tidings.wire import device


@dataclasses.dataclass(frozen=True, slots=True)
class AddressedGroup:
    """Group that a message is addressed to."""

    chat: Chat
    members: Collection[str]
    blocks: Mapping[str, Collection[str]]  # By member, the numbers that it blocks; without members that block none.


def judge(frame: device.Send, group: AddressedGroup | None) -> tuple[str, str]:
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
