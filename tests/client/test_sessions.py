"""Decisions about sessions, on real records."""

from __future__ import annotations

import pytest

from tests.e2ee.parties import Party, settled
from tidings import e2ee
from tidings.client import sessions
from tidings.client.sessions import PreKeys


def prekeys_of(party: Party) -> PreKeys:
    return PreKeys(
        {party.signed.key_id: party.signed}.get,
        {party.one_time.key_id: party.one_time}.get,
        {party.kyber.key_id: party.kyber}.get,
    )


def read_first(
    party: Party,
    record: e2ee.SessionRecord | None,
    body: bytes,
    *,
    prekeys: PreKeys | None = None,
    allow_downgrade: bool = False,
) -> tuple[e2ee.SessionRecord, bytes]:
    first = e2ee.PreKeySignalMessage.parse(body)
    found = prekeys or prekeys_of(party)
    return sessions.read_first(
        record, party.identity, first, body, found, check=lambda first: None, allow_downgrade=allow_downgrade
    )


def test_a_first_message_opens_one_session_which_reads_its_repetitions() -> None:
    ann, ben = Party(101), Party(102)
    anns = sessions.initiate(ann.identity, ann.registration_id, ben.bundle())
    (kind, one), (_, two) = anns.encrypt(b"one"), anns.encrypt(b"two")
    assert sessions.KINDS[kind] == "prekey"
    bens, plaintext = read_first(ben, None, one)
    assert plaintext == b"one"
    gone = PreKeys({}.get, {}.get, {}.get)
    assert read_first(ben, bens, two, prekeys=gone) == (bens, b"two")
    with pytest.raises(e2ee.DuplicateMessage):
        read_first(ben, bens, two, prekeys=gone)
    kind, reply = bens.encrypt(b"three")
    assert sessions.KINDS[kind] == "message"
    assert sessions.read(anns, reply) == (anns, b"three")


@pytest.mark.parametrize("missing", ["signed", "one_time", "kyber"])
def test_a_first_message_whose_pre_key_is_missing_is_repairable(missing: str) -> None:
    ann, ben = Party(101), Party(102)
    _, body = sessions.initiate(ann.identity, 101, ben.bundle()).encrypt(b"one")
    there = prekeys_of(ben)
    found = PreKeys(**{name: {}.get if name == missing else getattr(there, name) for name in PreKeys.__slots__})
    with pytest.raises(e2ee.UnknownPreKey) as raised:
        read_first(ben, None, body, prekeys=found)
    assert sessions.is_repairable(raised.value)


def test_an_ordinary_message_without_a_session_is_not_read() -> None:
    pair = settled()
    _, body = pair.alices.encrypt(b"x")
    with pytest.raises(e2ee.NoSession):
        sessions.read(None, body)


def test_a_changed_identity_is_trusted_and_replaces_the_earlier_sessions() -> None:
    pair = settled()
    _, late = pair.alices.encrypt(b"late")
    other = Party(103)
    _, body = sessions.initiate(other.identity, 103, pair.bob.bundle()).encrypt(b"I am new")
    assert not sessions.has_identity(pair.bobs, other.identity.public)
    record, plaintext = read_first(pair.bob, pair.bobs, body)
    assert (record is pair.bobs, plaintext) == (False, b"I am new")
    assert sessions.has_identity(record, other.identity.public)
    with pytest.raises(e2ee.E2EEError):
        sessions.read(record, late)


def test_a_post_quantum_downgrade_is_refused_unless_allowed() -> None:
    pair = settled(version=4)
    _, body = sessions.initiate(pair.alice.identity, 101, pair.bob.bundle(version=3)).encrypt(b"weaker")
    before = pair.bobs.receiving_half()
    with pytest.raises(e2ee.PostQuantumRequired) as raised:
        read_first(pair.bob, pair.bobs, body)
    assert pair.bobs.receiving_half() == before
    assert not sessions.is_repairable(raised.value)
    assert read_first(pair.bob, pair.bobs, body, allow_downgrade=True)[1] == b"weaker"
    # A peer with other keys starts with a fresh session.
    other = Party(103)
    _, body = sessions.initiate(other.identity, 103, pair.bob.bundle(version=3)).encrypt(b"new and weak")
    assert read_first(pair.bob, pair.bobs, body)[1] == b"new and weak"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_new_session_reads_late_messages_of_the_previous_one(at_once: bool) -> None:
    pair = settled()
    _, late = pair.bobs.encrypt(b"late")
    existing = pair.alices if at_once else None
    fresh = sessions.initiate(pair.alice.identity, 101, pair.bob.bundle(), existing)
    if not at_once:
        sessions.replace(fresh, pair.alices)
    assert sessions.tag_of(fresh) != sessions.tag_of(pair.alices)
    assert sessions.read(fresh, late)[1] == b"late"


@pytest.mark.parametrize("at_once", [True, False])
def test_a_bundle_of_another_identity_is_trusted_and_inherits_no_session(at_once: bool) -> None:
    pair = settled()
    _, late = pair.bobs.encrypt(b"late")
    existing = pair.alices if at_once else None
    fresh = sessions.initiate(pair.alice.identity, 101, Party(103).bundle(), existing)
    if not at_once:
        sessions.replace(fresh, pair.alices)
        sessions.replace(fresh, None)
    with pytest.raises(e2ee.InvalidMessage):
        sessions.read(fresh, late)


def test_a_bundle_without_the_required_post_quantum_key_is_refused() -> None:
    pair = settled(version=4)
    for other in (pair.bob, Party(103)):
        with pytest.raises(e2ee.PostQuantumRequired):
            sessions.initiate(pair.alice.identity, 101, other.bundle(version=3), pair.alices)
    with pytest.raises(e2ee.PostQuantumRequired):
        sessions.initiate(pair.alice.identity, 101, pair.bob.bundle(version=3), require_pq=True)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (e2ee.InvalidMessage("x"), True),
        (e2ee.TooFarAhead("x"), True),
        (e2ee.NoSession("x"), True),
        (e2ee.UnknownPreKey("x"), True),
        (e2ee.CorruptState("x"), True),
        (e2ee.DuplicateMessage("x"), False),
        (e2ee.UntrustedIdentity(b"x"), False),
        (e2ee.PostQuantumRequired("x"), False),
        (ValueError("x"), False),
    ],
)
def test_only_errors_that_a_new_session_can_repair_are_repairable(error: Exception, expected: bool) -> None:
    assert sessions.is_repairable(error) is expected


def test_the_session_tag_does_not_change_with_its_messages() -> None:
    pair = settled()
    tag = sessions.tag_of(pair.alices)
    pair.alices.encrypt(b"x")
    assert (sessions.tag_of(pair.alices), sessions.tag_of(pair.bobs), len(tag)) == (tag, tag, 8)
    assert sessions.tag_of(None) == bytes(8)
