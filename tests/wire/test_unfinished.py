"""Unfinished frames: bounded in total, each with a time limit. A frame sent at once is not charged for others."""

from __future__ import annotations

from tidings.wire.unfinished import IncompleteFrames


class Sender:
    """Connection with the start of a frame."""

    def __init__(self) -> None:
        self.is_held = False
        self.ended = ""

    def give_up(self, detail: str) -> None:
        self.ended = detail


def test_the_oldest_unfinished_frame_is_dropped_at_the_limit() -> None:
    unfinished, senders = IncompleteFrames(limit=100), [Sender() for _ in range(4)]
    for now, sender in enumerate(senders[:3]):
        unfinished.keep(sender, 30, now, is_new=True)
    # Its frame is complete, and the next one has started.
    unfinished.keep(senders[0], 20, 3, is_new=True)
    unfinished.keep(senders[3], 60, 4, is_new=True)
    assert [bool(sender.ended) for sender in senders] == [False, True, True, False]
    assert unfinished.size == 80


def test_receiving_more_of_a_frame_does_not_extend_its_deadline() -> None:
    unfinished, slow, late = IncompleteFrames(seconds=30), Sender(), Sender()
    unfinished.keep(slow, 10, 0, is_new=True)
    unfinished.keep(late, 10, 20, is_new=True)
    unfinished.keep(slow, 20, 29, is_new=False)
    unfinished.check(29.9)
    assert not slow.ended
    unfinished.check(30)
    assert "within 30 s" in slow.ended
    assert not late.ended
    assert unfinished.size == 10
    unfinished.keep(late, 0, 31, is_new=True)
    unfinished.check(1000)
    assert (late.ended, unfinished.size) == ("", 0)


def test_time_while_reading_is_paused_does_not_count() -> None:
    unfinished, sender = IncompleteFrames(seconds=30), Sender()
    unfinished.keep(sender, 10, 0, is_new=True)
    sender.is_held = True
    unfinished.check(40)
    sender.is_held = False
    unfinished.check(69)
    assert not sender.ended
    unfinished.check(70)
    assert sender.ended
