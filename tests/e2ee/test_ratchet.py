"""The ratchet over lines that lose, reorder and duplicate messages, with restarts; and its limits."""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.e2ee import parties
from tidings import e2ee
from tidings.e2ee import chains, ratchet


class Line:
    """Alice and Bob, and the messages in transit between them. It knows which messages must still be readable."""

    def __init__(self, version: int, *, settled: bool) -> None:
        self.people = (parties.Party(101), parties.Party(102))
        self.records: list[e2ee.SessionRecord | None] = [self.people[0].initiate(self.people[1], version), None]
        self.flying: tuple[list[tuple[int, bytes, bytes]], list[tuple[int, bytes, bytes]]] = ([], [])
        self.seen_keys: tuple[list[bytes], list[bytes]] = ([], [])  # ratchet keys that arrived, in order
        self.read: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]] = ([], [])
        self.texts = 0
        if settled:
            for sender in (0, 1, 0):
                self.send(sender)
                self.deliver(1 - sender, 0)

    def send(self, sender: int) -> None:
        record = self.records[sender]
        if record is None:
            return
        self.texts += 1
        text = b"text %d" % self.texts * (self.texts % 7)
        kind, body = record.encrypt(text)
        self.flying[1 - sender].append((kind, body, text))

    def deliver(self, receiver: int, position: int) -> None:
        if not self.flying[receiver]:
            return
        kind, body, text = self.flying[receiver].pop(position % len(self.flying[receiver]))
        inner = e2ee.PreKeySignalMessage.parse(body).message if kind == e2ee.PREKEY else e2ee.SignalMessage.parse(body)
        seen = self.seen_keys[receiver]
        if inner.ratchet_key in seen[: -ratchet.MAX_CHAINS]:
            record = self.records[receiver]
            assert record is not None
            with pytest.raises(e2ee.InvalidMessage):
                record.decrypt(kind, body)
            return
        self.records[receiver], plaintext = self.people[receiver].receive(self.records[receiver], kind, body)
        assert plaintext == text
        if inner.ratchet_key not in seen:
            seen.append(inner.ratchet_key)
        self.read[receiver].append((kind, body))

    def lose(self, receiver: int, position: int) -> None:
        if self.flying[receiver]:
            self.flying[receiver].pop(position % len(self.flying[receiver]))

    def repeat(self, receiver: int, position: int) -> None:
        """Deliver a message again that was read: refused, and nothing changes."""
        record = self.records[receiver]
        if record is None or not self.read[receiver]:
            return
        kind, body = self.read[receiver][position % len(self.read[receiver])]
        before = parties.blobs(record)
        with pytest.raises((e2ee.DuplicateMessage, e2ee.InvalidMessage)):
            record.decrypt(kind, body)
        assert parties.blobs(record) == before

    def restart(self, person: int) -> None:
        record = self.records[person]
        if record is not None:
            self.records[person] = parties.reload(self.people[person], record)


@pytest.mark.parametrize("version", parties.VERSIONS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thousands_of_messages_survive_loss_reordering_duplicates_and_restarts(version: int, seed: int) -> None:
    random_ = random.Random(seed)
    line = Line(version, settled=seed != 1)
    for _ in range(4_000):
        person, position, dice = random_.randrange(2), random_.randrange(8), random_.random()
        if dice < 0.45:
            line.send(person)
        elif dice < 0.83:
            line.deliver(person, position)
        elif dice < 0.89:
            line.lose(person, position)
        elif dice < 0.94:
            line.repeat(person, -1 - position)
        else:
            line.restart(person)
    for person in (0, 1):
        while line.flying[person]:
            line.deliver(person, 0)
    assert len(line.read[0]) + len(line.read[1]) > 1_000


class RatchetMachine(RuleBasedStateMachine):
    """Line on which hypothesis chooses the events."""

    person = st.integers(0, 1)
    position = st.integers(0, 5)

    @initialize(version=st.sampled_from(parties.VERSIONS), settled=st.booleans())
    def start(self, version: int, settled: bool) -> None:
        self.line = Line(version, settled=settled)

    @rule(person=person, count=st.integers(1, 4))
    def send(self, person: int, count: int) -> None:
        for _ in range(count):
            self.line.send(person)

    @rule(person=person, position=position)
    def deliver(self, person: int, position: int) -> None:
        self.line.deliver(person, position)

    @rule(person=person, position=position)
    def lose(self, person: int, position: int) -> None:
        self.line.lose(person, position)

    @rule(person=person, position=position)
    def repeat(self, person: int, position: int) -> None:
        self.line.repeat(person, position)

    @rule(person=person)
    def restart(self, person: int) -> None:
        self.line.restart(person)

    @invariant()
    def the_sending_half_keeps_its_size(self) -> None:
        for record in self.line.records:
            assert record is None or len(record.sending_half()) == 147


TestRatchetMachine = RatchetMachine.TestCase
TestRatchetMachine.settings = settings(max_examples=100, stateful_step_count=50)


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_duplicate_message_raises_duplicate_message(version: int) -> None:
    pair = parties.settled(version)
    sent = [pair.alices.encrypt(b"%d" % number) for number in range(3)]
    for position in (2, 0, 1):
        assert pair.bobs.decrypt(*sent[position]) == b"%d" % position
    before = parties.blobs(pair.bobs)
    for message in sent:
        with pytest.raises(e2ee.DuplicateMessage):
            pair.bobs.decrypt(*message)
    assert parties.blobs(pair.bobs) == before


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_message_is_read_again_after_its_state_change_was_lost(version: int) -> None:
    pair = parties.settled(version)
    before = parties.blobs(pair.bobs)
    message = pair.alices.encrypt(b"text")
    assert pair.bobs.decrypt(*message) == b"text"
    restored = e2ee.SessionRecord.load(pair.bob.identity, *before)
    assert restored.decrypt(*message) == b"text"


def test_equal_texts_encrypt_to_different_ciphertexts() -> None:
    pair = parties.settled()
    bodies = {pair.alices.encrypt(b"the same text")[1] for _ in range(50)}
    assert len({e2ee.SignalMessage.parse(body).ciphertext for body in bodies}) == 50


def test_encrypting_changes_only_the_sending_half() -> None:
    for record in (parties.settled().alices, parties.Party().initiate(parties.Party())):
        sending, receiving = parties.blobs(record)
        record.encrypt(b"text")
        assert record.receiving_half() == receiving
        assert record.sending_half() != sending


def _skip(record: e2ee.SessionRecord, count: int) -> None:
    for _ in range(count):
        record.encrypt(b"")


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_jump_of_25000_is_accepted_and_25001_refused(version: int) -> None:
    pair = parties.settled(version)
    _skip(pair.alices, chains.MAX_FORWARD_JUMP)
    last = pair.alices.encrypt(b"25,000 ahead")
    beyond = pair.alices.encrypt(b"25,001 ahead")
    before = parties.blobs(pair.bobs)
    with pytest.raises(e2ee.TooFarAhead):
        pair.bobs.decrypt(*beyond)
    assert parties.blobs(pair.bobs) == before
    assert pair.bobs.decrypt(*last) == b"25,000 ahead"
    assert pair.bobs.decrypt(*beyond) == b"25,001 ahead"


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_the_newest_2000_skipped_keys_are_kept(version: int) -> None:
    pair = parties.settled(version)
    early = [pair.alices.encrypt(b"%d" % number) for number in range(3)]
    _skip(pair.alices, chains.MAX_STORED_KEYS - 2)
    pair.bobs.decrypt(*pair.alices.encrypt(b"after 2,001 others"))
    pair.bobs = parties.reload(pair.bob, pair.bobs)
    with pytest.raises(e2ee.DuplicateMessage):
        pair.bobs.decrypt(*early[0])
    assert pair.bobs.decrypt(*early[2]) == b"2"  # makes room for one
    skipped = pair.alices.encrypt(b"skipped")
    pair.bobs.decrypt(*pair.alices.encrypt(b"one more passed over"))
    assert pair.bobs.decrypt(*early[1]) == b"1"
    assert pair.bobs.decrypt(*skipped) == b"skipped"
    assert len(pair.bobs.receiving_half()) < 2 * 36 * chains.MAX_STORED_KEYS + 1_000


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_the_last_5_receiving_chains_are_kept(version: int) -> None:
    pair = parties.settled(version)
    late = []
    for _ in range(ratchet.MAX_CHAINS + 1):
        late.append(pair.alices.encrypt(b"late"))
        pair.bobs.decrypt(*pair.alices.encrypt(b"ping"))
        pair.alices.decrypt(*pair.bobs.encrypt(b"pong"))
    with pytest.raises(e2ee.InvalidMessage):
        pair.bobs.decrypt(*late[0])
    for message in late[1:]:
        assert pair.bobs.decrypt(*message) == b"late"


def test_a_post_quantum_session_refuses_a_message_without_its_ratchet_field() -> None:
    pair = parties.settled(4)
    _, body = pair.alices.encrypt(b"text")
    assert body[-14:-8] == b"\x2a\x04\x01\x01\x03\x00"
    for field in (b"", b"\x2a\x04\x01\x01\x00\x00", b"\x2a\x04\x01\x02\x03\x00", b"\x2a\x04\x02\x01\x03\x00"):
        with pytest.raises(e2ee.InvalidMessage):
            pair.bobs.decrypt(e2ee.MESSAGE, body[:-14] + field + body[-8:])
    assert pair.bobs.decrypt(e2ee.MESSAGE, body) == b"text"
