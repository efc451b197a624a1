"""Bytes on the wire, compared with recorded facts."""

import pytest

from tests.e2ee import parties
from tidings import e2ee
from tidings.e2ee import messages, protobuf


def test_a_first_message_of_version_3_has_145_bytes() -> None:
    alice, bob = parties.Party(9), parties.Party(5)
    kind, body = alice.initiate(bob, 3).encrypt(b"hey")
    assert (kind, body[0], len(body)) == (e2ee.PREKEY, 0x34, 145)


def test_a_first_message_of_version_4_has_1719_bytes_or_1725_with_the_pq_ratchet() -> None:
    alice, bob = parties.Party(9), parties.Party(5)
    kind, body = alice.initiate(bob, 4, pq_ratchet=False).encrypt(b"hey")
    assert (kind, body[0], len(body)) == (e2ee.PREKEY, 0x44, 1719)
    assert len(alice.initiate(bob, 4).encrypt(b"hey")[1]) == 1719 + 6


def test_the_registration_id_is_encoded_as_a_varint() -> None:
    alice, bob = parties.Party(16_000), parties.Party(5)
    assert len(alice.initiate(bob, 3).encrypt(b"hey")[1]) == 145 + 1


@pytest.mark.parametrize(("version", "length"), [(3, 162), (4, 162 + 6)])
def test_a_settled_message_of_100_bytes_has_162_bytes_or_168_with_the_pq_ratchet(version: int, length: int) -> None:
    pair = parties.settled(version)
    kind, body = pair.alices.encrypt(bytes(100))
    assert (kind, len(body)) == (e2ee.MESSAGE, length)


@pytest.mark.parametrize(("version", "first"), [(3, 0x34), (4, 0x44)])
def test_a_signal_message_has_the_recorded_layout(version: int, first: int) -> None:
    pair = parties.settled(version)
    _, body = pair.alices.encrypt(bytes(100))
    assert body[:4] == bytes([first, 0x0A, 0x21, 0x05])
    assert body[36:43] == b"\x10\x01\x18\x00\x22\x70" + body[42:43]  # counter 1, previous 0, 112 bytes of ciphertext
    tail = body[42 + 112 : -8]
    assert tail == (b"" if version == 3 else b"\x2a\x04\x01\x01\x03\x00")


def test_a_prekey_message_has_its_fields_in_the_recorded_order() -> None:
    alice, bob = parties.Party(9), parties.Party(5)
    _, body = alice.initiate(bob, 4).encrypt(b"hey")
    assert list(protobuf.parse(body, 1, len(body))) == [5, 1, 6, 7, 8, 2, 3, 4]
    message = e2ee.PreKeySignalMessage.parse(body)
    assert (message.registration_id, message.prekey_id, message.signed_prekey_id, message.kyber_prekey_id) == (
        9,
        7,
        1,
        3,
    )
    assert message.identity_key == alice.identity.public
    assert message.kyber_ciphertext is not None
    assert (len(message.kyber_ciphertext), message.kyber_ciphertext[0]) == (1569, 0x08)


def test_the_id_of_an_absent_one_time_pre_key_is_omitted() -> None:
    alice, bob = parties.Party(9), parties.Party(5)
    record = e2ee.SessionRecord.initiate(alice.identity, 9, bob.bundle(3, one_time=False))
    _, body = record.encrypt(b"hey")
    assert e2ee.PreKeySignalMessage.parse(body).prekey_id is None
    assert len(body) == 143


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**32 - 1, 2**63])
def test_a_varint_round_trips(value: int) -> None:
    encoded = protobuf.varint(value)
    assert protobuf.read_varint(encoded, 0) == (value, len(encoded))


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    unknown = b"\x78\x05" + b"\x7a\x02ab" + b"\x7d1234" + b"\x7912345678"
    assert protobuf.take_uint32(protobuf.parse(unknown + protobuf.uint_field(2, 9), 0, len(unknown) + 2), 2) == 9


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a\x05abc",  # longer than the message
        b"\x0b",  # a group
        b"\x00\x00",  # field number 0
        b"\x10" + b"\xff" * 10 + b"\x01",  # a varint of eleven bytes
        b"\x10",  # nothing after the tag
        b"\x0d123",  # a fixed field cut off
        b"\x10\x00" * 65,  # too many fields
    ],
)
def test_malformed_protobuf_is_refused(data: bytes) -> None:
    with pytest.raises(e2ee.InvalidMessage):
        protobuf.parse(data, 0, len(data))


def test_numbers_over_32_bits_and_wrong_wire_types_are_refused() -> None:
    with pytest.raises(e2ee.InvalidMessage):
        protobuf.take_uint32({1: 2**32}, 1)
    with pytest.raises(e2ee.InvalidMessage):
        protobuf.take_uint32({1: b"x"}, 1)
    with pytest.raises(e2ee.InvalidMessage):
        protobuf.take_bytes({1: 1}, 1)


def test_only_the_high_nibble_of_the_first_byte_sets_the_version() -> None:
    pair = parties.settled(3)
    _, body = pair.alices.encrypt(b"text")
    assert e2ee.SignalMessage.parse(b"\x33" + body[1:]).version == 3
    for first in (0x24, 0x54, 0x04):
        with pytest.raises(e2ee.InvalidMessage):
            e2ee.SignalMessage.parse(bytes([first]) + body[1:])


def test_an_oversized_body_is_refused_unparsed() -> None:
    with pytest.raises(e2ee.InvalidMessage):
        e2ee.SignalMessage.parse(b"\x34" + bytes(messages.MAX_LENGTH))


def test_version_4_without_a_kyber_ciphertext_is_refused() -> None:
    alice, bob = parties.Party(), parties.Party()
    _, body = alice.initiate(bob, 4).encrypt(b"hey")
    fields = protobuf.parse(body, 1, len(body))
    del fields[8]
    rest = b"".join(
        protobuf.uint_field(number, value) if isinstance(value, int) else protobuf.bytes_field(number, value)
        for number, value in fields.items()
    )
    with pytest.raises(e2ee.InvalidMessage):
        e2ee.PreKeySignalMessage.parse(body[:1] + rest)
