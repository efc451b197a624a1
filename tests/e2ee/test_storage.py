"""Records as two blobs."""

import pytest

from tests.e2ee import parties
from tidings import e2ee


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_record_round_trips_byte_for_byte(version: int) -> None:
    pair = parties.settled(version)
    pair.bobs.decrypt(*[pair.alices.encrypt(b"%d" % number) for number in range(5)][4])
    again = parties.reload(pair.bob, pair.bobs)
    again.needs_setup(e2ee.PreKeySignalMessage.parse(pair.alice.initiate(pair.bob).encrypt(b"")[1]))  # decodes all
    assert parties.blobs(again) == parties.blobs(pair.bobs)
    assert (again.remote_identity, again.version) == (pair.alice.identity.public, version)


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_an_unacknowledged_record_keeps_sending_first_messages_after_a_restart(version: int) -> None:
    alice, bob = parties.Party(), parties.Party()
    alices = parties.reload(alice, alice.initiate(bob, version))
    assert alices.unacknowledged
    kind, body = alices.encrypt(b"hey")
    assert kind == e2ee.PREKEY
    bobs, text = bob.receive(None, kind, body)
    assert text == b"hey"
    alices = parties.reload(alice, alices)
    alices.decrypt(*bobs.encrypt(b"answer"))
    assert not parties.reload(alice, alices).unacknowledged


def test_the_sending_half_is_small_before_the_first_reply() -> None:
    alice, bob = parties.Party(), parties.Party()
    assert len(alice.initiate(bob).sending_half()) == 147
    assert len(parties.settled().alices.receiving_half()) < 600


def test_sending_loads_no_private_key() -> None:
    pair = parties.settled()
    reply = pair.bobs.encrypt(b"answer")
    sending, receiving = parties.blobs(pair.alices)
    damaged = e2ee.SessionRecord.load(pair.alice.identity, sending, receiving[:-1])
    for text in (b"text", b"more"):
        assert pair.bobs.decrypt(*damaged.encrypt(text)) == text
    with pytest.raises(e2ee.CorruptState):
        damaged.decrypt(*reply)


def test_halves_saved_at_different_times_do_not_load() -> None:
    pair = parties.settled()
    sending, receiving = parties.blobs(pair.alices)
    pair.alices.decrypt(*pair.bobs.encrypt(b"turn"))
    newer_sending, newer_receiving = parties.blobs(pair.alices)
    for halves in ((sending, newer_receiving), (newer_sending, receiving)):
        with pytest.raises(e2ee.CorruptState):
            e2ee.SessionRecord.load(pair.alice.identity, *halves)


def test_a_record_does_not_load_under_another_identity() -> None:
    pair = parties.settled()
    with pytest.raises(e2ee.CorruptState):
        e2ee.SessionRecord.load(pair.bob.identity, *parties.blobs(pair.alices))


def test_a_blob_of_an_unknown_version_or_length_does_not_load() -> None:
    pair = parties.settled()
    sending, receiving = parties.blobs(pair.alices)
    for halves in (
        (b"\x02" + sending[1:], receiving),
        (sending, b"\x02" + receiving[1:]),
        (sending[:-1], receiving),
        (sending + b"\x00", receiving),
        (b"", receiving),
        (sending, b""),
        (sending, receiving[:100]),
    ):
        with pytest.raises(e2ee.CorruptState):
            e2ee.SessionRecord.load(pair.alice.identity, *halves)


def test_a_truncated_receiving_half_raises_corrupt_state_at_the_latest_on_use() -> None:
    pair = parties.settled()
    renewed = e2ee.SessionRecord.initiate(pair.alice.identity, 1, pair.bob.bundle(), existing=pair.alices)
    sending, receiving = parties.blobs(renewed)
    message = pair.bobs.encrypt(b"text")
    for length in range(0, len(receiving), 7):
        with pytest.raises(e2ee.CorruptState):
            e2ee.SessionRecord.load(pair.alice.identity, sending, receiving[:length]).decrypt(*message)
    with pytest.raises(e2ee.CorruptState):
        e2ee.SessionRecord.load(pair.alice.identity, sending, receiving + b"\x00").decrypt(*message)
    assert e2ee.SessionRecord.load(pair.alice.identity, sending, receiving).decrypt(*message) == b"text"
