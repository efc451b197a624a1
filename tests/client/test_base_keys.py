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


def test_a_base_key_opens_one_session_regardless_of_the_claimed_sender() -> None:
    accepted, first = AcceptedBaseKeys(), first_message(Party(1))
    accepted.check(PEER, first)
    assert accepted.accept(PEER, first)
    for peer in (PEER, OTHER):
        with pytest.raises(e2ee.KnownBaseKey) as raised:
            accepted.check(peer, first)
        # The message is requested again on a new session, in case its sender continues one that we dropped.
        assert sessions.is_repairable(raised.value)


PRIME, CURVE = 2**255 - 19, 486_662
# The u-coordinate of a point of order 8.
ORDER_8 = 325606250916557431795983626356110631294008115727848805560023387167927233504
Point = tuple[int, int]


def _root(square: int) -> int:
    root = pow(square, (PRIME + 3) // 8, PRIME)
    if root * root % PRIME != square:
        root = root * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    assert root * root % PRIME == square
    return root


def _point(u: int) -> Point:
    return u, _root((u**3 + CURVE * u * u + u) % PRIME)


def _add(one: Point, other: Point) -> Point | None:
    (u1, v1), (u2, v2) = one, other
    if u1 == u2 and (v1 + v2) % PRIME == 0:
        return None
    rise, run = (3 * u1 * u1 + 2 * CURVE * u1 + 1, 2 * v1) if u1 == u2 else (v2 - v1, u2 - u1)
    slope = rise * pow(run, -1, PRIME) % PRIME
    u3 = (slope * slope - CURVE - u1 - u2) % PRIME
    return u3, (slope * (u1 - u3) - v1) % PRIME


def equivalents(public: bytes) -> list[bytes]:
    """Return the seven other public keys that agree on the same secrets: the point plus a point of small order."""
    found, point = [], _point(int.from_bytes(public[1:], "little"))
    small: Point | None = _point(ORDER_8)
    while small is not None:
        moved = _add(point, small)
        assert moved is not None
        found.append(public[:1] + moved[0].to_bytes(32, "little"))
        small = _add(small, _point(ORDER_8))
    return found


@pytest.mark.parametrize("has_record", [False, True])
def test_an_equivalent_encoding_of_a_base_key_opens_no_second_session(has_record: bool) -> None:
    owner, accepted = Party(1), AcceptedBaseKeys()
    body = sessions.initiate(Party(7).identity, 7, owner.bundle(one_time=False)).encrypt(b"pay 100")[1]
    first = e2ee.PreKeySignalMessage.parse(body)
    keys = sessions.PreKeys({1: owner.signed}.get, {7: owner.one_time}.get, {3: owner.kyber}.get)

    def read(record: e2ee.SessionRecord | None, body: bytes) -> tuple[e2ee.SessionRecord, bytes]:
        message = e2ee.PreKeySignalMessage.parse(body)
        return sessions.read_first(
            record, owner.identity, message, body, keys, check=lambda found: accepted.check(PEER, found)
        )

    record, plaintext = read(None, body)
    assert plaintext == b"pay 100"
    accepted.accept(PEER, first)
    others = equivalents(first.base_key)
    assert len(set(others) - {first.base_key}) == 7
    for other in others:
        replayed = body.replace(first.base_key, other)
        assert replayed != body
        with pytest.raises(e2ee.KnownBaseKey):
            read(record if has_record else None, replayed)


def test_a_first_message_with_a_one_time_pre_key_is_not_recorded() -> None:
    accepted, first = AcceptedBaseKeys(), first_message(Party(1), one_time=True)
    assert accepted.accept(PEER, first) is None
    accepted.check(PEER, first)


@pytest.mark.parametrize(("each", "total"), [(1_000, 1_000), (0, 1_000_000)], ids=["of one peer", "of all"])
def test_no_session_opens_beyond_the_base_key_limits_per_peer_and_in_total(each: int, total: int) -> None:
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
