"""Order in which deliveries are handled when there is no time for all of them."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from coreapp.receiving import delivery_order, inspection
from tidings.wire import device, groups
from tidings.wire.device import Deliver
from tidings.wire.groups import GroupNotice

ANN, BEN, EVE = "15550110001", "15550110002", "15550110003"
GROUP = "15550110009-1700000000"


def delivery(n: int, sender: str, kind: str = device.MESSAGE, *, group: str = "", body: bytes = b"") -> Deliver:
    return Deliver(n, "15550000000", sender, f"e{n}", kind, 0, body, [], group=group)


def notice(n: int, *numbers: str, change: str = groups.REMOVED) -> Deliver:
    body = msgspec.json.encode(GroupNotice(change, EVE, list(numbers), "subject", n))
    return delivery(n, EVE, device.GROUP_CHANGED, group=GROUP, body=body)


def test_a_delivery_after_a_flood_is_handled_second() -> None:
    flood = [delivery(n, EVE) for n in range(300)]
    read = delivery(300, ANN, device.READ)
    assert delivery_order.arrange([*flood, read])[:2] == [flood[0], read]


@given(st.lists(st.sampled_from([ANN, BEN, EVE]), max_size=30))
def test_arranging_keeps_all_deliveries_and_each_sender_s_order(senders: list[str]) -> None:
    deliveries = [delivery(n, sender) for n, sender in enumerate(senders)]
    arranged = delivery_order.arrange(deliveries)
    assert sorted(arranged, key=lambda each: each.n) == deliveries
    for sender in set(senders):
        numbers = [each.n for each in arranged if each.sender == sender]
        assert numbers == sorted(numbers)


def test_a_participant_s_deliveries_stay_before_the_notice_of_their_removal() -> None:
    deliveries = [
        *(delivery(n, ANN) for n in range(3)),
        delivery(3, ANN, device.GROUP, group=GROUP),
        delivery(4, BEN, device.GROUP, group=GROUP),
        notice(5, ANN),
        delivery(6, ANN),
        notice(7, ANN, change=groups.JOINED),
    ]
    assert delivery_order.arrange(deliveries) == deliveries


def test_group_changes_do_not_delay_members_of_other_groups() -> None:
    changes = [notice(n, EVE) for n in range(20)]
    message = delivery(20, BEN, device.GROUP, group="15550110009-1800000000")
    assert delivery_order.arrange([*changes, message]).index(message) == 1


def test_a_part_is_limited_in_deliveries_and_ids_and_never_empty() -> None:
    def receipt(n: int, kind: str, ids: int) -> Deliver:
        return Deliver(n, "15550000000", ANN, f"e{n}", kind, 0, b"", [f"m{m}" for m in range(ids)])

    assert len(inspection.part([delivery(n, ANN) for n in range(900)])) == inspection.MAX_DELIVERIES
    assert len(inspection.part([receipt(n, device.READ, 1000) for n in range(9)])) == 4
    assert len(inspection.part([receipt(n, device.RETRY, 100) for n in range(9)])) == 4
    assert len(inspection.part([receipt(0, device.RETRY, 1000)])) == 1
    assert len(inspection.part([])) == 0
