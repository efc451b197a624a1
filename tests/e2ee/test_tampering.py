"""A change of any byte in transit is refused and changes no state."""

import pytest

from tests.e2ee import parties
from tidings import e2ee
from tidings.e2ee import protobuf


@pytest.mark.parametrize("version", parties.VERSIONS)
@pytest.mark.parametrize("new_chain", [True, False])
def test_a_message_tampered_with_at_any_byte_is_refused_and_changes_no_state(version: int, new_chain: bool) -> None:
    pair = parties.settled(version)
    if new_chain:
        pair.alices.decrypt(*pair.bobs.encrypt(b"turn"))
    kind, body = pair.alices.encrypt(bytes(100))
    before = parties.blobs(pair.bobs)
    for position in range(len(body)):
        for flip in (0x01, 0x80):
            tampered = bytearray(body)
            tampered[position] ^= flip
            with pytest.raises((e2ee.InvalidMessage, e2ee.DuplicateMessage)):
                pair.bobs.decrypt(kind, bytes(tampered))
    assert parties.blobs(pair.bobs) == before
    assert pair.bobs.decrypt(kind, body) == bytes(100)


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_truncated_or_extended_message_is_refused_and_changes_no_state(version: int) -> None:
    pair = parties.settled(version)
    kind, body = pair.alices.encrypt(bytes(20))
    before = parties.blobs(pair.bobs)
    for changed in [body[:length] for length in range(len(body))] + [body + b"\x00", body + body]:
        with pytest.raises(e2ee.InvalidMessage):
            pair.bobs.decrypt(kind, changed)
    assert parties.blobs(pair.bobs) == before


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_tampered_first_message_is_refused_in_every_authenticated_byte(version: int) -> None:
    """A first message has no MAC: the low nibble of byte 0 and the registration id are not authenticated."""
    alice, bob = parties.Party(9), parties.Party(5)
    kind, body = alice.initiate(bob, version).encrypt(b"hey")
    assert body[1:3] == protobuf.uint_field(5, 9)
    accepted = set()
    for position in range(len(body)):
        tampered = bytearray(body)
        tampered[position] ^= 0x01
        try:
            _, plaintext = bob.receive(None, kind, bytes(tampered))
        except e2ee.E2EEError:
            continue
        assert plaintext == b"hey"
        accepted.add(position)
    assert accepted <= {0, 1, 2}


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_tampered_repetition_of_a_first_message_changes_no_state(version: int) -> None:
    alice, bob = parties.Party(9), parties.Party(5)
    alices = alice.initiate(bob, version)
    bobs, _ = bob.receive(None, *alices.encrypt(b"one"))
    kind, body = alices.encrypt(b"two")
    before = parties.blobs(bobs)
    inner = e2ee.PreKeySignalMessage.parse(body).message
    for position in range(len(body) - len(inner.authenticated) - 8, len(body)):
        tampered = bytearray(body)
        tampered[position] ^= 0x01
        with pytest.raises(e2ee.E2EEError):
            bobs.decrypt(kind, bytes(tampered))
    assert parties.blobs(bobs) == before
    assert bobs.decrypt(kind, body) == b"two"


def test_a_message_for_another_session_is_refused() -> None:
    pair, others = parties.settled(), parties.settled()
    before = parties.blobs(pair.bobs)
    with pytest.raises(e2ee.InvalidMessage):
        pair.bobs.decrypt(*others.alices.encrypt(b"text"))
    with pytest.raises(e2ee.InvalidMessage):
        pair.alices.decrypt(*pair.alices.encrypt(b"to myself"))
    assert parties.blobs(pair.bobs) == before
