"""Sender Keys over lines that lose, reorder and duplicate messages, with restarts and rotations."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.e2ee import groups
from tidings import e2ee
from tidings.e2ee import sender_keys

MEMBERS = 2


@dataclass(frozen=True)
class Sent:
    """Message in transit to a member, or, with `text` None, the distribution message of a chain."""

    body: bytes
    chain: int
    iteration: int
    text: bytes | None


class Member:
    """Record of a member, and the messages that it must be able to read after everything that has arrived."""

    def __init__(self) -> None:
        self.record = e2ee.SenderKeyRecord(groups.DISTRIBUTION_ID)
        self.flying: list[Sent] = []
        self.starts: dict[int, int] = {}  # first readable iteration of each known chain, oldest first
        self.read: set[tuple[int, int]] = set()

    def deliver(self, position: int) -> None:
        if self.flying:
            sent = self.flying.pop(position % len(self.flying))
            if sent.text is None:
                self.hear(sent)
            else:
                self.receive(sent, sent.text)

    def hear(self, sent: Sent) -> None:
        before = self.record.to_bytes()
        known = bool(self.starts) and next(reversed(self.starts)) == sent.chain
        self.record.process(sent.body)
        if known:
            assert self.record.to_bytes() == before
        start = self.starts.pop(sent.chain, sent.iteration)
        self.starts[sent.chain] = start
        while len(self.starts) > sender_keys.MAX_STATES:
            forgotten = next(iter(self.starts))
            del self.starts[forgotten]
            # If a late distribution message brings the chain back, the record has no memory of it.
            self.read = {(chain, iteration) for chain, iteration in self.read if chain != forgotten}

    def receive(self, sent: Sent, text: bytes) -> None:
        before = self.record.to_bytes()
        if sent.chain not in self.starts:
            with pytest.raises(e2ee.NoSession):
                self.record.decrypt(sent.body)
        elif sent.iteration < self.starts[sent.chain] or (sent.chain, sent.iteration) in self.read:
            with pytest.raises(e2ee.DuplicateMessage):
                self.record.decrypt(sent.body)
        else:
            assert self.record.decrypt(sent.body) == text
            self.read.add((sent.chain, sent.iteration))
            return
        assert self.record.to_bytes() == before


class Line:
    """Sender, members, and the messages in transit between them."""

    def __init__(self) -> None:
        self.sender = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID)
        self.members = [Member() for _ in range(MEMBERS)]
        self.chain = 0
        self.iteration = 0
        for member in range(MEMBERS):
            self.distribute(member)

    def send(self) -> None:
        text = b"text %d of chain %d" % (self.iteration, self.chain) * (self.iteration % 4)
        sent = Sent(self.sender.encrypt(text), self.chain, self.iteration, text)
        self.iteration += 1
        for member in self.members:
            member.flying.append(sent)

    def distribute(self, member: int) -> None:
        self.members[member].flying.append(Sent(self.sender.distribution(), self.chain, self.iteration, None))

    def rotate(self) -> None:
        self.sender = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID)
        self.chain += 1
        self.iteration = 0
        for member in range(MEMBERS):
            self.distribute(member)

    def deliver(self, member: int, position: int) -> None:
        self.members[member].deliver(position)

    def lose(self, member: int, position: int) -> None:
        flying = self.members[member].flying
        if flying:
            flying.pop(position % len(flying))

    def repeat(self, member: int, position: int) -> None:
        """Deliver a message in transit twice."""
        flying = self.members[member].flying
        if flying:
            flying.append(flying[position % len(flying)])

    def restart(self, member: int) -> None:
        self.sender = groups.reload(self.sender)
        self.members[member].record = groups.reload(self.members[member].record)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thousands_of_messages_survive_loss_reordering_duplicates_restarts_and_rotations(seed: int) -> None:
    random_ = random.Random(seed)
    line = Line()
    for _ in range(5_000):
        member, position, dice = random_.randrange(MEMBERS), random_.randrange(8), random_.random()
        if dice < 0.25:
            line.send()
        elif dice < 0.80:
            line.deliver(member, position)
        elif dice < 0.86:
            line.lose(member, position)
        elif dice < 0.92:
            line.repeat(member, position)
        elif dice < 0.97:
            line.restart(member)
        elif dice < 0.99:
            line.distribute(member)
        else:
            line.rotate()
    assert sum(len(member.read) for member in line.members) > 100


class SenderKeyMachine(RuleBasedStateMachine):
    """Line on which hypothesis chooses the events."""

    member = st.integers(0, MEMBERS - 1)
    position = st.integers(0, 5)

    @initialize()
    def start(self) -> None:
        self.line = Line()

    @rule(count=st.integers(1, 4))
    def send(self, count: int) -> None:
        for _ in range(count):
            self.line.send()

    @rule(member=member, position=position)
    def deliver(self, member: int, position: int) -> None:
        self.line.deliver(member, position)

    @rule(member=member, position=position)
    def lose(self, member: int, position: int) -> None:
        self.line.lose(member, position)

    @rule(member=member, position=position)
    def repeat(self, member: int, position: int) -> None:
        self.line.repeat(member, position)

    @rule(member=member)
    def distribute(self, member: int) -> None:
        self.line.distribute(member)

    @rule()
    def rotate(self) -> None:
        self.line.rotate()

    @rule(member=member)
    def restart(self, member: int) -> None:
        self.line.restart(member)


TestSenderKeyMachine = SenderKeyMachine.TestCase
TestSenderKeyMachine.settings = settings(max_examples=60, stateful_step_count=50)
