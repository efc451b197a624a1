"""Guarantees of a record of sender keys for its sender, for members and for former members; its limits and its
blob."""

from __future__ import annotations

import pytest

from tests.e2ee import groups
from tidings import e2ee
from tidings.e2ee import chains, group_messages, protobuf, sender_keys


def test_every_member_reads_the_same_ciphertext() -> None:
    sender = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID)
    members = [groups.joined(sender) for _ in range(20)]
    body = sender.encrypt(b"to all of you")
    assert [member.decrypt(body) for member in members] == [b"to all of you"] * 20


def test_a_message_names_the_distribution_and_chain_of_its_record() -> None:
    group = groups.group()
    distribution = e2ee.DistributionMessage.parse(group.sender.distribution())
    message = e2ee.GroupMessage.parse(group.sender.encrypt(b"text"))
    assert message.distribution_id == distribution.distribution_id == groups.DISTRIBUTION_ID
    assert message.chain_id == distribution.chain_id < 1 << 31


def test_a_duplicate_message_is_refused_and_changes_no_state() -> None:
    group = groups.group()
    sent = [group.sender.encrypt(b"%d" % number) for number in range(3)]
    for position in (2, 0, 1):
        assert group.member.decrypt(sent[position]) == b"%d" % position
    before = group.member.to_bytes()
    for body in sent:
        with pytest.raises(e2ee.DuplicateMessage):
            group.member.decrypt(body)
    assert group.member.to_bytes() == before


def test_a_message_is_read_again_after_its_state_change_was_lost() -> None:
    group = groups.group()
    before = group.member.to_bytes()
    body = group.sender.encrypt(b"text")
    assert group.member.decrypt(body) == b"text"
    assert e2ee.SenderKeyRecord.from_bytes(before).decrypt(body) == b"text"


def test_a_new_member_reads_only_messages_after_joining() -> None:
    group = groups.group()
    earlier = group.sender.encrypt(b"before you came")
    newcomer = groups.joined(group.sender)
    with pytest.raises(e2ee.DuplicateMessage):
        newcomer.decrypt(earlier)
    assert newcomer.decrypt(group.sender.encrypt(b"welcome")) == b"welcome"
    assert group.member.decrypt(earlier) == b"before you came"


def test_a_former_member_reads_nothing_after_rotation_and_others_read_all() -> None:
    group = groups.group()
    leaver, late = groups.joined(group.sender), group.sender.encrypt(b"on its way while one leaves")
    old_key = e2ee.DistributionMessage.parse(group.sender.distribution()).signing_key[1:]
    rotated = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID)
    assert old_key not in rotated.to_bytes()
    group.member.process(rotated.distribution())
    body = rotated.encrypt(b"among ourselves")
    with pytest.raises(e2ee.NoSession):
        leaver.decrypt(body)
    assert group.member.decrypt(body) == b"among ourselves"
    assert group.member.decrypt(late) == b"on its way while one leaves"


def test_a_member_cannot_forge_a_message_of_the_sender() -> None:
    group = groups.group()
    known = e2ee.DistributionMessage.parse(group.sender.distribution())
    own = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID)
    body = own.encrypt(b"forged")
    forged = group_messages.encode_group_message(
        known.distribution_id, known.chain_id, known.iteration, e2ee.GroupMessage.parse(body).ciphertext
    )
    before = group.member.to_bytes()
    for signed in (
        forged + e2ee.IdentityKeyPair.generate().sign(forged),
        forged + bytes(64),
        forged + group.sender.encrypt(b"genuine")[-64:],
    ):
        with pytest.raises(e2ee.InvalidMessage):
            group.member.decrypt(signed)
    assert group.member.to_bytes() == before


def test_a_member_can_neither_encrypt_nor_distribute() -> None:
    group = groups.group()
    for record in (group.member, e2ee.SenderKeyRecord(groups.DISTRIBUTION_ID)):
        with pytest.raises(e2ee.NoSession):
            record.encrypt(b"text")
        with pytest.raises(e2ee.NoSession):
            record.distribution()


def test_a_sender_does_not_read_its_own_messages() -> None:
    sender = groups.group().sender
    with pytest.raises(e2ee.DuplicateMessage):
        sender.decrypt(sender.encrypt(b"text"))


def test_an_unknown_chain_needs_its_distribution_message() -> None:
    sender = groups.group().sender
    member = e2ee.SenderKeyRecord(groups.DISTRIBUTION_ID)
    distribution, body = sender.distribution(), sender.encrypt(b"kept until then")
    with pytest.raises(e2ee.NoSession):
        member.decrypt(body)
    member.process(distribution)
    assert member.decrypt(body) == b"kept until then"


def test_messages_of_another_group_are_refused() -> None:
    group, other = groups.group(), groups.group(bytes(16))
    before = group.member.to_bytes()
    with pytest.raises(e2ee.InvalidMessage):
        group.member.decrypt(other.sender.encrypt(b"text"))
    with pytest.raises(e2ee.InvalidMessage):
        group.member.process(other.sender.distribution())
    assert group.member.to_bytes() == before


def test_equal_texts_encrypt_to_different_ciphertexts() -> None:
    sender = groups.group().sender
    bodies = [sender.encrypt(b"the same text") for _ in range(50)]
    assert len({e2ee.GroupMessage.parse(body).ciphertext for body in bodies}) == 50


def test_no_two_records_share_a_chain_or_a_signing_key() -> None:
    made = [e2ee.DistributionMessage.parse(e2ee.SenderKeyRecord.create(bytes(16)).distribution()) for _ in range(20)]
    assert len({message.chain_key for message in made}) == len({message.signing_key for message in made}) == 20


def test_a_jump_of_25000_is_accepted_and_25001_refused() -> None:
    group = groups.group()
    groups.skip(group.sender, chains.MAX_FORWARD_JUMP)
    last = group.sender.encrypt(b"25,000 ahead")
    beyond = group.sender.encrypt(b"25,001 ahead")
    before = group.member.to_bytes()
    with pytest.raises(e2ee.TooFarAhead):
        group.member.decrypt(beyond)
    assert group.member.to_bytes() == before
    assert group.member.decrypt(last) == b"25,000 ahead"
    assert group.member.decrypt(beyond) == b"25,001 ahead"


def test_a_member_beyond_the_jump_limit_catches_up_by_a_distribution_message() -> None:
    group = groups.group()
    early = group.sender.encrypt(b"early")
    group.member.decrypt(group.sender.encrypt(b"passes one over"))
    groups.skip(group.sender, chains.MAX_FORWARD_JUMP)
    group.member.process(group.sender.distribution())  # within the jump: stays
    within = group.sender.encrypt(b"exactly the jump ahead")
    distribution, body = group.sender.distribution(), group.sender.encrypt(b"far ahead")
    with pytest.raises(e2ee.TooFarAhead):
        group.member.decrypt(body)
    group.member.process(distribution)
    assert group.member.decrypt(body) == b"far ahead"
    assert group.member.decrypt(early) == b"early"
    with pytest.raises(e2ee.DuplicateMessage):
        group.member.decrypt(within)


def test_the_newest_2000_skipped_keys_are_kept() -> None:
    group = groups.group()
    early = [group.sender.encrypt(b"%d" % number) for number in range(3)]
    groups.skip(group.sender, chains.MAX_STORED_KEYS - 2)
    group.member.decrypt(group.sender.encrypt(b"after 2,001 others"))
    group.member = groups.reload(group.member)
    with pytest.raises(e2ee.DuplicateMessage):
        group.member.decrypt(early[0])
    assert group.member.decrypt(early[1]) == b"1"
    assert group.member.decrypt(early[2]) == b"2"
    assert len(group.member.to_bytes()) < 36 * chains.MAX_STORED_KEYS + 200


def test_the_last_5_chains_are_kept() -> None:
    member = e2ee.SenderKeyRecord(groups.DISTRIBUTION_ID)
    late = []
    for number in range(sender_keys.MAX_STATES + 1):
        sender = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID)
        member.process(sender.distribution())
        late.append(sender.encrypt(b"%d" % number))
    with pytest.raises(e2ee.NoSession):
        member.decrypt(late[0])
    assert [member.decrypt(body) for body in late[1:]] == [b"%d" % number for number in range(1, len(late))]


def test_a_repeated_distribution_message_changes_nothing() -> None:
    group = groups.group()
    first = groups.reload(group.sender).distribution()
    body = group.sender.encrypt(b"text")
    group.member.decrypt(body)
    before = group.member.to_bytes()
    for distribution in (first, group.sender.distribution()):
        group.member.process(distribution)
        assert group.member.to_bytes() == before
    with pytest.raises(e2ee.DuplicateMessage):
        group.member.decrypt(body)


def test_a_reused_chain_id_with_another_signing_key_replaces_the_chain() -> None:
    group = groups.group()
    old = group.sender.encrypt(b"old")
    fields = e2ee.DistributionMessage.parse(group.sender.distribution())
    pair = e2ee.IdentityKeyPair.generate()
    group.member.process(
        group_messages.DistributionMessage(fields.distribution_id, fields.chain_id, 0, bytes(32), pair.public).encode()
    )
    with pytest.raises(e2ee.InvalidMessage):
        group.member.decrypt(old)
    assert len(group.member.to_bytes()) == 18 + 79  # one chain


def test_exhausted_iterations_require_a_new_chain() -> None:
    blob = groups.group().sender.to_bytes()
    # The chain's field after its key: the next iteration.
    sender = e2ee.SenderKeyRecord.from_bytes(blob[:119] + protobuf.MAX_UINT32.to_bytes(8, "big") + blob[127:])
    assert e2ee.GroupMessage.parse(sender.encrypt(b"the last")).iteration == protobuf.MAX_UINT32
    with pytest.raises(e2ee.NoSession):
        sender.encrypt(b"one too many")
    with pytest.raises(e2ee.NoSession):
        sender.distribution()


def test_a_record_round_trips_byte_for_byte() -> None:
    group = groups.group()
    group.member.process(e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID).distribution())
    group.member.decrypt([group.sender.encrypt(b"%d" % number) for number in range(5)][4])
    for record in (group.sender, group.member, e2ee.SenderKeyRecord(groups.DISTRIBUTION_ID)):
        again = groups.reload(record)
        assert again.to_bytes() == record.to_bytes()
        assert again.distribution_id == groups.DISTRIBUTION_ID
    assert groups.joined(groups.reload(group.sender)).decrypt(group.sender.encrypt(b"text")) == b"text"


def test_a_damaged_blob_or_unknown_version_raises_corrupt_state() -> None:
    group = groups.group()
    group.member.decrypt([group.sender.encrypt(b"%d" % number) for number in range(3)][2])
    for blob in (group.sender.to_bytes(), group.member.to_bytes()):
        minus_one = blob[:22] + groups.MINUS_ONE + blob[54:]
        too_many = blob[:17] + b"\x06" + blob[18:] + blob[18:] * 5
        cut = [blob[:length] for length in range(len(blob))]
        for damaged in [b"\x02" + blob[1:], blob + b"\x00", minus_one, too_many, *cut]:
            with pytest.raises(e2ee.CorruptState):
                e2ee.SenderKeyRecord.from_bytes(damaged)


@pytest.mark.parametrize("distribution_id", [b"", bytes(15), bytes(17)])
def test_a_distribution_id_of_wrong_length_is_refused(distribution_id: bytes) -> None:
    for make in (e2ee.SenderKeyRecord, e2ee.SenderKeyRecord.create):
        with pytest.raises(e2ee.InvalidKey):
            make(distribution_id)


def test_repr_shows_no_secret() -> None:
    group = groups.group()
    message = e2ee.DistributionMessage.parse(group.sender.distribution())
    for shown in (repr(message), repr(group.sender), repr(group.sender._states)):
        assert repr(message.chain_key) not in shown
        assert "chain_key" not in shown
