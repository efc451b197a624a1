"""Order of deliveries: as they arrived, or round robin over senders when the time does not suffice for all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from coreapp.groups import notices
from tidings.wire import device
from tidings.wire.device import Deliver


def arrange(deliveries: Sequence[Deliver]) -> Sequence[Deliver]:
    """Return the deliveries round robin over senders. Those of one sender stay in order.

    Deliveries that a notice of a group affects stay in order as well: messages to the group, and all deliveries of the
    numbers that the notice names.
    """
    unions = _UnionFind()
    changed = {delivery.group for delivery in deliveries if delivery.kind == device.GROUP_CHANGED}
    for delivery in deliveries:
        if delivery.kind == device.GROUP_CHANGED:
            notice = notices.read(delivery.body)
            for number in notice.numbers if notice is not None else ():
                unions.join(delivery.group, number)
        elif delivery.kind == device.GROUP and delivery.group in changed:
            unions.join(delivery.group, delivery.sender)
    queues: dict[str, list[Deliver]] = {}
    for delivery in deliveries:
        own = delivery.group if delivery.kind == device.GROUP_CHANGED else delivery.sender
        queues.setdefault(unions.find(own), []).append(delivery)
    rounds = itertools.zip_longest(*queues.values())
    return [delivery for each in rounds for delivery in each if delivery is not None]


class _UnionFind:
    """Union of senders and groups whose deliveries form one queue. Each union is named by one of its members."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def find(self, name: str) -> str:
        while name in self._parents:
            name = self._parents[name]
        return name

    def join(self, one: str, other: str) -> None:
        root, other_root = self.find(one), self.find(other)
        if root != other_root:
            self._parents[other_root] = root
