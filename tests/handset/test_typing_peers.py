"""Peers that a device shows as typing: for 25 seconds, or until their message."""

from __future__ import annotations

from handset.typing_peers import TypingPeers
from tests.manual_clock import ManualClock

ADA, BEN, BUSINESS, OTHER = "15550100001", "15550100002", "15550000000", "15550000001"


def test_an_indicator_ends_after_25_seconds() -> None:
    clock = ManualClock()
    peers = TypingPeers(clock)
    assert peers.begin(ADA, BUSINESS)
    clock.advance(24.0)
    assert peers.list_of(ADA) == [BUSINESS]
    # A later one lasts for another 25 seconds.
    assert not peers.begin(ADA, BUSINESS)
    clock.advance(24.9)
    assert peers.list_of(ADA) == [BUSINESS]
    clock.advance(0.2)
    assert peers.list_of(ADA) == []
    assert peers.begin(ADA, BUSINESS)


def test_a_message_ends_the_indicator_of_its_sender_on_its_device_only() -> None:
    peers = TypingPeers(ManualClock())
    for number, peer in ((ADA, OTHER), (ADA, BUSINESS), (BEN, BUSINESS)):
        peers.begin(number, peer)
    assert peers.list_of(ADA) == [BUSINESS, OTHER]
    peers.end(ADA, BUSINESS)
    peers.end(ADA, "15559999999")
    assert (peers.list_of(ADA), peers.list_of(BEN)) == ([OTHER], [BUSINESS])
    peers.clear()
    assert (peers.list_of(ADA), peers.list_of(BEN)) == ([], [])
