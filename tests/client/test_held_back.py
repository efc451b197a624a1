"""Sends that the network refuses for now are sent again, however precise the clock of the timers is."""

from __future__ import annotations

import pytest

from tidings.client.held_back import HeldBack
from tidings.wire import device

DUE = 1.0  # LEAST_SECONDS after 0


def sends(held: HeldBack[str], *ids: str) -> list[device.Send]:
    """Add sends to one recipient, the first of which was refused at time 0."""
    made = [device.Send(n, "15550100001", "15550100002", id, kind=device.MESSAGE) for n, id in enumerate(ids)]
    held.refused(made[0], ids[0], now=0.0, seconds=0.0)
    for send in made[1:]:
        held.add(send, send.id)
    return made


@pytest.mark.parametrize("again", [DUE - 0.0004, DUE, DUE + 0.0004])
def test_a_timer_that_fires_early_is_set_again(again: float) -> None:
    """Timers have a resolution of 1 ms: the check may come before the due time, and the next is requested after
    it."""
    held: HeldBack[str] = HeldBack()
    sends(held, "a", "b")
    assert not list(held.due(DUE - 0.0005))
    assert held.next_due(again) == DUE
    assert [sent for _, sent in held.due(max(again, DUE))] == ["a"]


def test_sends_waiting_behind_a_due_retry_need_no_timer() -> None:
    held: HeldBack[str] = HeldBack()
    first, *_ = sends(held, "a", "b", "c")
    assert [sent for _, sent in held.due(DUE)] == ["a"]
    assert held.next_due(DUE) is None
    assert [sent for _, sent in held.answered(first, DUE)] == ["b", "c"]
    assert held.next_due(DUE) is None
