"""Sender key messages on the wire, compared with recorded facts, and after a change of any byte."""

import struct

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tests.e2ee import groups
from tidings import e2ee
from tidings.e2ee import chains, group_messages, kdf, messages, protobuf, xeddsa


def with_chain_id(chain_id: int) -> e2ee.SenderKeyRecord:
    blob = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID).to_bytes()
    return e2ee.SenderKeyRecord.from_bytes(blob[:18] + chain_id.to_bytes(4, "big") + blob[22:])


def test_a_group_message_of_100_bytes_encodes_to_205_bytes() -> None:
    # 7 of 8 chains have an id of at least 2^28, which is a varint of 5 bytes.
    assert len(with_chain_id(2**31 - 1).encrypt(bytes(100))) == 205
    assert len(with_chain_id(2**28).encrypt(bytes(100))) == 205


def test_chain_id_and_iteration_are_encoded_as_varints() -> None:
    assert len(with_chain_id(2**28 - 1).encrypt(bytes(100))) == 205 - 1
    assert len(with_chain_id(0).encrypt(bytes(100))) == 205 - 4
    sender = with_chain_id(2**28)
    groups.skip(sender, 127)
    assert len(sender.encrypt(bytes(100))) == 205
    assert len(sender.encrypt(bytes(100))) == 205 + 1


def test_the_encoded_length_grows_by_whole_blocks() -> None:
    sender = with_chain_id(2**28)
    assert [len(sender.encrypt(bytes(length))) for length in (0, 15, 16, 95, 96, 111, 112)] == [
        109,
        109,
        125,
        189,
        205,
        205,
        222,  # a ciphertext of 128 bytes has a length of two bytes
    ]


def test_a_group_message_has_the_recorded_layout() -> None:
    body = with_chain_id(0x10000000).encrypt(bytes(100))
    assert body[:19] == b"\x33\x0a\x10" + groups.DISTRIBUTION_ID
    assert body[19:29] == b"\x10\x80\x80\x80\x80\x01" + b"\x18\x00" + b"\x22\x70"
    assert len(body[29:]) == 112 + 64
    message = e2ee.GroupMessage.parse(body)
    assert (message.signed, message.signature) == (body[:-64], body[-64:])
    assert (message.distribution_id, message.chain_id, message.iteration) == (groups.DISTRIBUTION_ID, 0x10000000, 0)


def test_a_distribution_message_has_the_recorded_layout() -> None:
    sender = with_chain_id(5)
    sender.encrypt(b"text")
    body = sender.distribution()
    assert body[:23] == b"\x33\x0a\x10" + groups.DISTRIBUTION_ID + b"\x10\x05" + b"\x18\x01"
    assert (body[23:25], body[57:60], len(body)) == (b"\x22\x20", b"\x2a\x21\x05", 92)
    assert e2ee.DistributionMessage.parse(body).encode() == body


def test_only_the_high_nibble_of_the_first_byte_sets_the_version() -> None:
    group = groups.group()
    for body, parse in (
        (group.sender.distribution(), e2ee.DistributionMessage.parse),
        (group.sender.encrypt(b"text"), e2ee.GroupMessage.parse),
    ):
        parse(b"\x34" + body[1:])
        for first in (0x23, 0x44, 0x03):
            with pytest.raises(e2ee.InvalidMessage):
                parse(bytes([first]) + body[1:])
        with pytest.raises(e2ee.InvalidMessage):
            parse(b"\x33" + bytes(messages.MAX_LENGTH))


def test_a_message_tampered_with_at_any_byte_is_refused_and_changes_no_state() -> None:
    group = groups.group()
    group.sender.encrypt(b"passed over")
    body = group.sender.encrypt(bytes(100))
    before = group.member.to_bytes()
    for position in range(len(body)):
        for flip in (0x01, 0x40, 0x80):
            tampered = bytearray(body)
            tampered[position] ^= flip
            with pytest.raises((e2ee.InvalidMessage, e2ee.NoSession)):
                group.member.decrypt(bytes(tampered))
    assert group.member.to_bytes() == before
    assert group.member.decrypt(body) == bytes(100)


def test_the_signature_is_checked_before_the_message_is_interpreted() -> None:
    group = groups.group()
    first = group.sender.encrypt(b"first")
    assert group.member.decrypt(first) == b"first"
    groups.skip(group.sender, 25_001)
    for body in (first, group.sender.encrypt(b"too far ahead")):
        with pytest.raises(e2ee.InvalidMessage) as caught:
            group.member.decrypt(body[:-1] + bytes([body[-1] ^ 1]))
        assert caught.type is e2ee.InvalidMessage  # a wrong MAC proves neither a duplicate nor a jump


def test_a_truncated_or_extended_message_is_refused_and_changes_no_state() -> None:
    group = groups.group()
    body = group.sender.encrypt(bytes(20))
    before = group.member.to_bytes()
    for changed in [body[:length] for length in range(len(body))] + [body + b"\x00", body + body]:
        with pytest.raises(e2ee.InvalidMessage):
            group.member.decrypt(changed)
    assert group.member.to_bytes() == before


def test_a_truncated_distribution_message_is_refused_and_changes_no_state() -> None:
    group = groups.group()
    body = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID).distribution()
    before = group.member.to_bytes()
    for length in range(len(body)):
        with pytest.raises(e2ee.InvalidMessage):
            group.member.process(body[:length])
    assert group.member.to_bytes() == before


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_distribution_message_with_a_missing_or_invalid_field_is_refused(number: int) -> None:
    body = groups.group().sender.distribution()
    for wrong in (None, b"", bytes(15), bytes(31), bytes(33), 2**32):
        fields = {**protobuf.parse(body, 1, len(body)), number: wrong}
        encoded = b"".join(
            protobuf.uint_field(name, value) if isinstance(value, int) else protobuf.bytes_field(name, value)
            for name, value in fields.items()
            if value is not None
        )
        with pytest.raises(e2ee.InvalidMessage):
            e2ee.DistributionMessage.parse(b"\x33" + encoded)


def test_a_signing_key_without_an_edwards_point_is_refused() -> None:
    message = group_messages.DistributionMessage(bytes(16), 1, 0, bytes(32), b"\x05" + groups.MINUS_ONE)
    with pytest.raises(e2ee.InvalidMessage):
        e2ee.DistributionMessage.parse(message.encode())


@pytest.mark.parametrize("length", [0, 15, 17])
def test_a_partial_ciphertext_block_is_refused(length: int) -> None:
    body = group_messages.encode_group_message(groups.DISTRIBUTION_ID, 1, 0, bytes(length)) + bytes(64)
    with pytest.raises(e2ee.InvalidMessage):
        e2ee.GroupMessage.parse(body)


def with_padding(sender: e2ee.SenderKeyRecord, plaintext: bytes, padding: bytes) -> bytes:
    """Return the next message of a sender with one chain, made from the keys in the record, with the given
    padding."""
    blob = sender.to_bytes()
    (chain_id,) = struct.unpack_from(">I", blob, 18)
    private, chain_key, (iteration,) = blob[55:87], blob[87:119], struct.unpack_from(">Q", blob, 119)
    _, seed = chains.step(chain_key, iteration)
    keys = kdf.hkdf(kdf.ZERO_SALT, seed, b"WhisperGroup", 48)
    encryptor = Cipher(algorithms.AES(keys[16:]), modes.CBC(keys[:16])).encryptor()
    ciphertext = encryptor.update(plaintext + padding) + encryptor.finalize()
    body = group_messages.encode_group_message(sender.distribution_id, chain_id, iteration, ciphertext)
    return body + xeddsa.sign(private, body)


def test_a_manually_padded_message_is_read() -> None:
    group = groups.group()
    assert group.member.decrypt(with_padding(group.sender, bytes(15), b"\x01")) == bytes(15)


@pytest.mark.parametrize("last", [b"\x00", b"\x11", b"\x02", b"\xff"])
def test_invalid_padding_under_a_valid_signature_is_refused_and_changes_no_state(last: bytes) -> None:
    group = groups.group()
    body = with_padding(group.sender, bytes(15), last)
    before = group.member.to_bytes()
    with pytest.raises(e2ee.InvalidMessage):
        group.member.decrypt(body)
    assert group.member.to_bytes() == before
    assert group.member.decrypt(group.sender.encrypt(b"text")) == b"text"
