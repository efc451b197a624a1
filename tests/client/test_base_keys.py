"""First messages without a one-time pre-key: each opens a session once, and the number of base keys is limited."""

from __future__ import annotations

import pytest

from tests.e2ee.parties import Party
from tidings import e2ee
from tidings.client import sessions
from tidings.client.base_keys import AcceptedBaseKeys

PEER, OTHER = "15550100001", "15550100002"


def first_message(owner: Party, *, one_time: bool = False) -> e2ee.PreKeySignalMessage:
    record = sessions.initiate(Party(7).identity, 7, owner.bundle(one_time=one_time))
    return e2ee.PreKeySignalMessage.parse(record.encrypt(b"x")[1])


def test_a_base_key_opens_one_session_whoever_is_said_to_send_it() -> None:
    accepted, first = AcceptedBaseKeys(), first_message(Party(1))
    accepted.check(PEER, first)
    assert accepted.accept(PEER, first) == first.base_key[1:].hex()
    for peer in (PEER, OTHER):
        with pytest.raises(e2ee.KnownBaseKey) as raised:
            accepted.check(peer, first)
        # The message is requested again on a new session, in case its sender continues one that we dropped.
        assert sessions.is_repairable(raised.value)


def test_a_message_with_a_one_time_pre_key_is_not_kept() -> None:
    accepted, first = AcceptedBaseKeys(), first_message(Party(1), one_time=True)
    assert accepted.accept(PEER, first) is None
    accepted.check(PEER, first)


@pytest.mark.parametrize(("each", "total"), [(1_000, 1_000), (0, 1_000_000)], ids=["of one peer", "of all"])
def test_beyond_a_thousand_of_a_peer_and_a_million_of_all_no_session_is_opened(each: int, total: int) -> None:
    accepted, first = AcceptedBaseKeys(), first_message(Party(1))
    accepted.load((), {PEER: each}, total)
    with pytest.raises(e2ee.TooManySetUps) as raised:
        accepted.check(PEER, first)
    assert sessions.is_repairable(raised.value)
    accepted.check(PEER, first_message(Party(1), one_time=True))
    accepted.load((), {PEER: each - 1}, total - 1)
    accepted.check(PEER, first)
    accepted.accept(PEER, first)
    with pytest.raises(e2ee.TooManySetUps):
        accepted.check(PEER, first_message(Party(1)))
