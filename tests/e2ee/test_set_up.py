"""Set-up of sessions: bundles, first messages, downgrades, sessions that cross."""

import dataclasses

import pytest

from tests.e2ee import parties
from tidings import e2ee
from tidings.e2ee import record as record_module
from tidings.e2ee import session_setup


@pytest.mark.parametrize("version", parties.VERSIONS)
@pytest.mark.parametrize("one_time", [True, False])
def test_a_first_message_is_read_and_its_reply_settles_the_session(version: int, one_time: bool) -> None:
    alice, bob = parties.Party(101), parties.Party(102)
    alices = e2ee.SessionRecord.initiate(alice.identity, 101, bob.bundle(version, one_time=one_time))
    assert (alices.unacknowledged, alices.version) == (True, version)
    assert (alices.remote_identity, alices.remote_registration_id) == (bob.identity.public, 102)

    for text in (b"one", b"two"):
        kind, body = alices.encrypt(text)
        assert kind == e2ee.PREKEY
    bobs, plaintext = bob.receive(None, kind, body)
    assert plaintext == b"two"
    assert (bobs.unacknowledged, bobs.version) == (False, version)
    assert (bobs.remote_identity, bobs.remote_registration_id) == (alice.identity.public, 101)

    kind, body = bobs.encrypt(b"answer")
    assert kind == e2ee.MESSAGE
    assert alices.decrypt(kind, body) == b"answer"
    assert not alices.unacknowledged
    assert alices.encrypt(b"three")[0] == e2ee.MESSAGE


def test_the_root_key_of_version_4_depends_on_the_kem() -> None:
    alice, bob, other = parties.Party(), parties.Party(), parties.Party()
    _, body = alice.initiate(bob, 4).encrypt(b"hey")
    message = e2ee.PreKeySignalMessage.parse(body)
    wrong = dataclasses.replace(bob.kyber, private=other.kyber.private)
    record = e2ee.SessionRecord.respond(None, bob.identity, message, bob.signed, bob.one_time, wrong)
    with pytest.raises(e2ee.InvalidMessage):
        record.decrypt(e2ee.PREKEY, body)


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_bundle_with_a_wrong_signature_is_refused(version: int) -> None:
    alice, bob, mallory = parties.Party(), parties.Party(), parties.Party()
    bundle = bob.bundle(version)
    fields = {"signed_prekey_signature": mallory.identity.sign(bob.signed.public)}
    changed = [fields, {"signed_prekey": mallory.signed.public}, {"identity_key": mallory.identity.public}]
    if version == 4:
        changed += [{"kyber_prekey": mallory.kyber.public}, {"kyber_prekey_signature": mallory.kyber.signature}]
    for change in changed:
        with pytest.raises(e2ee.InvalidSignature):
            e2ee.SessionRecord.initiate(alice.identity, 1, dataclasses.replace(bundle, **change))


def test_a_bundle_with_a_malformed_or_incomplete_key_is_refused() -> None:
    alice, bob = parties.Party(), parties.Party()
    for change in (
        {"prekey": b"\x05" + bytes(31)},
        {"prekey": b"\x05" + bytes(32)},  # a point of small order: the shared secret is zero
        {"prekey": None},
        {"prekey_id": None},
        {"kyber_prekey": None},
        {"kyber_prekey_id": None},
        {"kyber_prekey_signature": None},
        {"kyber_prekey": bob.kyber.public[1:]},
        {"identity_key": bob.identity.public[1:]},
        {"registration_id": -1},
        {"registration_id": 1 << 32},
    ):
        with pytest.raises(e2ee.InvalidKey):
            e2ee.SessionRecord.initiate(alice.identity, 1, dataclasses.replace(bob.bundle(), **change))


@pytest.mark.parametrize("u", [bytes(32), b"\x01" + bytes(31)])
def test_a_correctly_signed_pre_key_of_small_order_is_refused(u: bytes) -> None:
    alice, bob = parties.Party(), parties.Party()
    key = b"\x05" + u
    bundle = dataclasses.replace(bob.bundle(3), signed_prekey=key, signed_prekey_signature=bob.identity.sign(key))
    with pytest.raises(e2ee.InvalidKey):
        e2ee.SessionRecord.initiate(alice.identity, 1, bundle)


def test_a_base_key_of_small_order_is_refused() -> None:
    alice, bob = parties.Party(), parties.Party()
    _, body = alice.initiate(bob, 3).encrypt(b"hey")
    message = e2ee.PreKeySignalMessage.parse(body)
    forged = e2ee.PreKeySignalMessage.parse(body.replace(message.base_key, b"\x05" + bytes(32)))
    with pytest.raises(e2ee.InvalidMessage):
        bob.respond(None, forged)


def test_require_pq_refuses_a_bundle_and_a_message_without_kyber() -> None:
    alice, bob = parties.Party(), parties.Party()
    with pytest.raises(e2ee.PostQuantumRequired):
        alice.initiate(bob, 3, require_pq=True)
    _, body = alice.initiate(bob, 3).encrypt(b"hey")
    with pytest.raises(e2ee.PostQuantumRequired):
        bob.respond(None, e2ee.PreKeySignalMessage.parse(body), require_pq=True)
    assert alice.initiate(bob, 4, require_pq=True).version == 4


def test_a_bundle_without_kyber_is_refused_after_one_with_kyber() -> None:
    bob = parties.Party()
    with pytest.raises(e2ee.PostQuantumRequired):
        e2ee.check_downgrade(True, bob.bundle(3))
    e2ee.check_downgrade(True, bob.bundle(4))
    e2ee.check_downgrade(False, bob.bundle(3))


def test_a_record_that_used_version_4_refuses_version_3_from_either_side() -> None:
    pair = parties.settled(4)
    with pytest.raises(e2ee.PostQuantumRequired):
        e2ee.SessionRecord.initiate(pair.alice.identity, 1, pair.bob.bundle(3), existing=pair.alices)
    _, body = pair.alice.initiate(pair.bob, 3).encrypt(b"hey")
    with pytest.raises(e2ee.PostQuantumRequired):
        pair.bob.receive(pair.bobs, e2ee.PREKEY, body)


def test_a_changed_identity_raises_untrusted_identity() -> None:
    pair = parties.settled()
    newcomer = parties.Party()
    kind, body = newcomer.initiate(pair.bob).encrypt(b"it is still me")
    with pytest.raises(e2ee.UntrustedIdentity) as caught:
        pair.bob.receive(pair.bobs, kind, body)
    assert caught.value.identity_key == newcomer.identity.public
    assert pair.bob.receive(None, kind, body)[1] == b"it is still me"
    with pytest.raises(e2ee.UntrustedIdentity):
        e2ee.SessionRecord.initiate(pair.alice.identity, 1, newcomer.bundle(), existing=pair.alices)
    with pytest.raises(e2ee.UntrustedIdentity):
        pair.bobs.decrypt(kind, body)


def test_an_unavailable_pre_key_raises_unknown_pre_key() -> None:
    alice, bob, other = parties.Party(), parties.Party(), parties.Party()
    other.signed = dataclasses.replace(other.signed, key_id=99)
    _, body = alice.initiate(bob).encrypt(b"hey")
    message = e2ee.PreKeySignalMessage.parse(body)
    for signed, one_time, kyber in (
        (other.signed, bob.one_time, bob.kyber),
        (bob.signed, None, bob.kyber),
        (bob.signed, dataclasses.replace(bob.one_time, key_id=99), bob.kyber),
        (bob.signed, bob.one_time, None),
        (bob.signed, bob.one_time, dataclasses.replace(bob.kyber, key_id=99)),
    ):
        with pytest.raises(e2ee.UnknownPreKey):
            e2ee.SessionRecord.respond(None, bob.identity, message, signed, one_time, kyber)


def test_a_repeated_first_message_needs_no_second_session_setup() -> None:
    alice, bob = parties.Party(), parties.Party()
    alices = alice.initiate(bob)
    bobs, _ = bob.receive(None, *alices.encrypt(b"one"))
    kind, body = alices.encrypt(b"two")
    message = e2ee.PreKeySignalMessage.parse(body)
    assert not bobs.needs_setup(message)
    assert bob.respond(bobs, message) is bobs
    assert parties.reload(bob, bobs).needs_setup(message) is False
    assert bobs.decrypt(kind, body) == b"two"
    with pytest.raises(e2ee.DuplicateMessage):
        bobs.decrypt(kind, body)


def test_a_first_message_without_a_prior_respond_raises_no_session() -> None:
    pair = parties.settled()
    kind, body = pair.alice.initiate(pair.bob).encrypt(b"anew")
    with pytest.raises(e2ee.NoSession):
        pair.bobs.decrypt(kind, body)
    with pytest.raises(e2ee.InvalidMessage):
        pair.bobs.decrypt(7, body)


def test_responding_does_not_change_the_existing_record() -> None:
    pair = parties.settled()
    _, body = pair.alice.initiate(pair.bob).encrypt(b"anew")
    before = parties.blobs(pair.bobs)
    pair.bob.respond(pair.bobs, e2ee.PreKeySignalMessage.parse(body))
    assert parties.blobs(pair.bobs) == before


def test_reading_a_message_of_an_archived_session_promotes_the_session() -> None:
    pair = parties.settled()
    old = pair.alices
    renewed = e2ee.SessionRecord.initiate(pair.alice.identity, 101, pair.bob.bundle(), existing=pair.alices)
    bobs, _ = pair.bob.receive(pair.bobs, *renewed.encrypt(b"anew"))
    late = old.encrypt(b"from the old session")
    bobs = parties.reload(pair.bob, bobs)
    assert bobs.decrypt(*late) == b"from the old session"
    reply = bobs.encrypt(b"in the old session")
    assert old.decrypt(*reply) == b"in the old session"
    assert bobs.decrypt(*renewed.encrypt(b"still here")) == b"still here"


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_simultaneous_initiation_by_both_sides_converges(version: int) -> None:
    alice, bob = parties.Party(101), parties.Party(102)
    alices, bobs = alice.initiate(bob, version), bob.initiate(alice, version)
    to_bob, to_alice = alices.encrypt(b"from alice"), bobs.encrypt(b"from bob")
    alices, text = alice.receive(alices, *to_alice)
    assert text == b"from bob"
    bobs, text = bob.receive(bobs, *to_bob)
    assert text == b"from alice"
    for turn in range(6):  # replies cross repeatedly
        to_bob, to_alice = alices.encrypt(b"a%d" % turn), bobs.encrypt(b"b%d" % turn)
        alices, bobs = parties.reload(alice, alices), parties.reload(bob, bobs)
        alices, text = alice.receive(alices, *to_alice)
        assert text == b"b%d" % turn
        bobs, text = bob.receive(bobs, *to_bob)
        assert text == b"a%d" % turn
    bobs, _ = bob.receive(bobs, *alices.encrypt(b"one way"))  # the sessions settle once replies do not cross
    alices, _ = alice.receive(alices, *bobs.encrypt(b"the other"))
    assert not alices.unacknowledged
    assert not bobs.unacknowledged


def test_the_archive_keeps_10_sessions_and_drops_the_oldest() -> None:
    alice, bob = parties.Party(), parties.Party()
    bobs, sessions = None, []
    for number in range(record_module.MAX_ARCHIVED + 2):
        sessions.append(alice.initiate(bob, 3))
        bobs, _ = bob.receive(bobs, *sessions[-1].encrypt(b"%d" % number))
    assert bobs is not None
    oldest, second = (e2ee.PreKeySignalMessage.parse(session.encrypt(b"")[1]) for session in sessions[:2])
    assert bobs.needs_setup(oldest)
    assert not bobs.needs_setup(second)
    bobs = parties.reload(bob, bobs)
    assert bobs.decrypt(*sessions[1].encrypt(b"late")) == b"late"


def test_the_root_key_depends_on_every_secret_of_the_key_agreement() -> None:
    alice, bob = parties.Party(), parties.Party()
    roots = {session_setup.initiate(alice.identity, bob.bundle(version)).keys.root_key for version in (3, 3, 4, 4)}
    assert len(roots) == 4


def test_a_version_4_peer_without_the_post_quantum_ratchet_is_supported() -> None:
    alice, bob = parties.Party(), parties.Party()
    alices = alice.initiate(bob, 4, pq_ratchet=False)
    bobs, _ = bob.receive(None, *alices.encrypt(b"hey"))
    _, body = bobs.encrypt(b"answer")
    assert e2ee.SignalMessage.parse(body).pq_ratchet == b""
    assert alices.decrypt(e2ee.MESSAGE, body) == b"answer"
    assert bobs.decrypt(*alices.encrypt(b"again")) == b"again"
