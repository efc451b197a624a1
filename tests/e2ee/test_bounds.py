"""Cost of a hostile peer: chain steps before a message has authenticated, and bytes in a record."""

from __future__ import annotations

import random

import pytest

from tests.e2ee import groups, parties
from tidings import e2ee
from tidings.e2ee import chains, curve, messages, pq_ratchet, ratchet, sender_keys, work
from tidings.e2ee import record as record_module


class Steps:
    """Counter of chain steps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        for module in (chains, pq_ratchet):
            monkeypatch.setattr(module, "step", self._counted(module.step))

    def _counted(self, step: chains.Step) -> chains.Step:
        def counted(chain_key: bytes, index: int) -> tuple[bytes, bytes]:
            self.made += 1
            return step(chain_key, index)

        return counted


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(monkeypatch)


def garbage(version: int, ratchet_key: bytes, counter: int, pq_index: int) -> bytes:
    """Return a message that is valid except for its MAC."""
    field_5 = pq_ratchet.encode(pq_index) if version == 4 else b""
    head = messages.signal_message_head(version, ratchet_key)
    return messages.encode_signal_message(head, counter, 0, bytes(16), field_5) + bytes(messages.MAC_LENGTH)


def ratchet_key(session: e2ee.SessionRecord) -> bytes:
    """Return the public key of the session's sending chain, as its next message shows it."""
    kind, body = session.encrypt(b"")
    message = (
        e2ee.PreKeySignalMessage.parse(body).message if kind == e2ee.PREKEY else messages.SignalMessage.parse(body)
    )
    return message.ratchet_key


def jump(record: e2ee.SessionRecord, count: int) -> None:
    """Advance the peer's sending chain without sending anything."""
    sending = record._sending
    for _ in range(count):
        sending.chain_key, _ = chains.step(sending.chain_key, sending.counter)
        sending.counter += 1
        if sending.pq_chain_key is not None:
            sending.pq_chain_key, _ = pq_ratchet.step(sending.pq_chain_key, sending.pq_index)
            sending.pq_index += 1


def staged(
    version: int, count: int = record_module.MAX_ARCHIVED + 1, *, alice: parties.Party | None = None
) -> tuple[parties.Party, e2ee.SessionRecord, list[e2ee.SessionRecord]]:
    """Return Bob, his record, and the sessions that Alice opened with him, oldest first."""
    alice, bob = alice or parties.Party(), parties.Party()
    bobs, sessions = None, []
    for _ in range(count):
        sessions.append(alice.initiate(bob, version))
        bobs, _ = bob.receive(bobs, *sessions[-1].encrypt(b"first"))
    assert bobs is not None
    return bob, bobs, sessions


@pytest.mark.parametrize("version", parties.VERSIONS)
@pytest.mark.parametrize("counter", [100, 2_000, 25_000])
def test_an_invalid_message_on_an_unknown_chain_costs_few_steps(version: int, counter: int, steps: Steps) -> None:
    _, bobs, _ = staged(version)
    before, steps.made = parties.blobs(bobs), 0
    for pq_index in (1, counter):
        with pytest.raises(e2ee.InvalidMessage):
            bobs.decrypt(e2ee.MESSAGE, garbage(version, curve.KeyPair.generate().public, counter, pq_index))
    assert steps.made <= 2 * 2 * (2_001 + record_module.MAX_ARCHIVED * 101)
    assert parties.blobs(bobs) == before


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_an_invalid_message_on_a_known_chain_costs_one_jump_in_its_session_only(version: int, steps: Steps) -> None:
    _, bobs, sessions = staged(version)
    for session, bound in ((sessions[-1], 25_001), (sessions[3], 2_001 + record_module.MAX_ARCHIVED * 101 + 2_001)):
        for counter in (2_000, 25_000):
            steps.made = 0
            with pytest.raises(e2ee.InvalidMessage):
                bobs.decrypt(e2ee.MESSAGE, garbage(version, ratchet_key(session), counter, counter))
            assert steps.made <= 2 * bound


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_ratchet_key_shared_by_archived_sessions_does_not_raise_the_cost(
    version: int, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate, shared = curve.KeyPair.generate, curve.KeyPair.generate()
    alice, bob = parties.Party(), parties.Party()
    bobs = None
    for _ in range(record_module.MAX_ARCHIVED):
        with monkeypatch.context() as patched:
            # The base key, then the ratchet key.
            made = iter([generate(), shared])
            patched.setattr(curve.KeyPair, "generate", lambda made=made: next(made))
            session = alice.initiate(bob, version)
        assert ratchet_key(session) == shared.public
        bobs, _ = bob.receive(bobs, *session.encrypt(b"first"))
    bobs, _ = bob.receive(bobs, *alice.initiate(bob, version).encrypt(b"last"))
    steps.made = 0
    with pytest.raises(e2ee.InvalidMessage):
        bobs.decrypt(e2ee.MESSAGE, garbage(version, shared.public, 2_000, 2_000))
    assert steps.made <= 2 * 2 * 2_001


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_jump_of_2000_onto_a_new_chain_is_accepted_and_2001_refused(version: int) -> None:
    pair = parties.settled(version)
    pair.alices.decrypt(*pair.bobs.encrypt(b"your turn"))
    for position in range(2_001):
        sent = pair.alices.encrypt(b"%d" % position)
        if position == 1:
            early = sent
    with pytest.raises(e2ee.TooFarAhead):
        pair.bobs.decrypt(*pair.alices.encrypt(b"2,001 ahead"))
    assert pair.bobs.decrypt(*sent) == b"2000"
    assert pair.bobs.decrypt(*early) == b"1"


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_late_messages_of_an_archived_session_are_read_in_any_order(version: int) -> None:
    alice = parties.Party()
    bob, bobs, sessions = staged(version, 1, alice=alice)
    sessions[0].decrypt(*bobs.encrypt(b"answer"))
    bobs.decrypt(*sessions[0].encrypt(b"a chain that is known"))
    reply = bobs.encrypt(b"another answer")
    late = [sessions[0].encrypt(b"%d" % position) for position in range(301)]
    sessions[0].decrypt(*reply)
    new_chain = [sessions[0].encrypt(b"%d" % position) for position in range(2)]
    for _ in range(3):
        bobs, _ = bob.receive(bobs, *alice.initiate(bob, version).encrypt(b"again"))
    bobs = parties.reload(bob, bobs)
    assert bobs.decrypt(*late[300]) == b"300"
    for _ in range(2):
        bobs, _ = bob.receive(bobs, *alice.initiate(bob, version).encrypt(b"again"))
    assert bobs.decrypt(*late[0]) == b"0"
    assert bobs.decrypt(*new_chain[1]) == b"1"
    assert bobs.decrypt(*new_chain[0]) == b"0"
    assert bobs.decrypt(*late[299]) == b"299"


@pytest.mark.parametrize(("version", "count"), [(3, 100), (4, 20)])
def test_repeated_first_messages_do_not_grow_a_record_beyond_its_limit(version: int, count: int) -> None:
    alice, bob = parties.Party(), parties.Party()
    bobs = None
    for _ in range(count):
        session = alice.initiate(bob, version)
        first, passed_over = session.encrypt(b"first"), session.encrypt(b"passed over")
        jump(session, 1_998)
        bobs, _ = bob.receive(bobs, *session.encrypt(b"2,000 ahead"))
        assert len(bobs.receiving_half()) == bobs.length <= record_module.MAX_LENGTH
    assert bobs is not None
    bobs = parties.reload(bob, bobs)
    for message, text in ((passed_over, b"passed over"), (session.encrypt(b"honest"), b"honest"), (first, b"first")):
        assert bobs.decrypt(*message) == text
    assert bobs.length <= record_module.MAX_LENGTH


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_jumps_over_many_chains_do_not_grow_a_record_beyond_its_limit(version: int) -> None:
    """The business replies to each message automatically."""
    alice, bob = parties.Party(), parties.Party()
    bobs, chance = alice.initiate(bob, version), random.Random(1)
    sessions: list[e2ee.SessionRecord] = []
    current: e2ee.SessionRecord | None = None
    for turn in range(60):
        if turn % 5 == 0:
            sessions.append(alice.initiate(bob, version))
            current = sessions[-1]
        # An archived session becomes current occasionally.
        session = sessions[-1] if turn % 7 else chance.choice(sessions[-4:])
        passed_over = session.encrypt(b"passed over")
        jump(session, 1_900 if session is current else 90)
        bobs, _ = bob.receive(bobs if turn else None, *session.encrypt(b"far ahead"))
        assert len(bobs.receiving_half()) == bobs.length <= record_module.MAX_LENGTH
        session.decrypt(*bobs.encrypt(b"automatic answer"))
        current = session
    assert bobs.length > record_module.MAX_LENGTH - 2 * chains.STORED_LENGTH
    bobs = parties.reload(bob, bobs)
    assert bobs.decrypt(*passed_over) == b"passed over"
    assert bobs.decrypt(*session.encrypt(b"honest")) == b"honest"


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_a_record_stored_under_wider_limits_is_loaded_and_trimmed(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as wide:
        wide.setattr(record_module, "MAX_ARCHIVED", 40)
        wide.setattr(record_module, "MAX_LENGTH", 1 << 30)
        alice, bob = parties.Party(), parties.Party()
        bobs, sessions = None, []
        for _ in range(41):
            sessions.append(alice.initiate(bob, version))
            jump(sessions[-1], 500)
            bobs, _ = bob.receive(bobs, *sessions[-1].encrypt(b"500 ahead"))
        assert bobs is not None
    assert len(bobs.receiving_half()) > 41 * 500 * chains.STORED_LENGTH > record_module.MAX_LENGTH
    for position in (-1, -5, 0):
        loaded = parties.reload(bob, bobs)
        assert loaded.decrypt(*sessions[position].encrypt(b"in order")) == b"in order"
        assert len(loaded.receiving_half()) == loaded.length <= record_module.MAX_LENGTH
    begun = alice.initiate(bob, version)
    after = bob.respond(bobs, e2ee.PreKeySignalMessage.parse(begun.encrypt(b"")[1]))
    assert len(after.receiving_half()) <= record_module.MAX_LENGTH < len(bobs.receiving_half())


def test_a_record_without_stored_keys_is_far_below_the_limit() -> None:
    """Enough stored keys can therefore always be dropped."""
    alice, bob = parties.Party(), parties.Party()
    record: e2ee.SessionRecord | None = None
    for _ in range(record_module.MAX_ARCHIVED + 1):
        # Pending key exchanges are the longest.
        record = e2ee.SessionRecord.initiate(alice.identity, 1, bob.bundle(4), existing=record)
    assert record is not None
    chains_of_all = (record_module.MAX_ARCHIVED + 1) * (ratchet.MAX_CHAINS + 1) * 80
    assert len(record.receiving_half()) + chains_of_all < 30_000 < record_module.MAX_LENGTH


def test_an_unsigned_group_message_advances_no_chain(steps: Steps) -> None:
    group = groups.group()
    body = bytearray(group.sender.encrypt(b"text"))
    groups.skip(group.sender, 3_000)
    far = bytearray(group.sender.encrypt(b"far ahead"))
    far[-1] ^= 1
    steps.made = 0
    with pytest.raises(e2ee.InvalidMessage):
        group.member.decrypt(bytes(far))
    assert steps.made == 0
    assert group.member.decrypt(bytes(body)) == b"text"


def test_new_chains_of_a_group_member_do_not_grow_a_record_beyond_its_limit() -> None:
    member = e2ee.SenderKeyRecord(groups.DISTRIBUTION_ID)
    for _ in range(sender_keys.MAX_STATES + 3):
        sender = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID)
        member.process(sender.distribution())
        groups.skip(sender, 2_000)
        member.decrypt(sender.encrypt(b"2,000 ahead"))
        assert len(member.to_bytes()) < sender_keys.MAX_STATES * (2_000 * chains.STORED_LENGTH + 100)


def refuses(_steps: int) -> bool:
    """Refuse all steps, as an exhausted budget does."""
    return False


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_an_invalid_message_costs_little_when_the_budget_is_exhausted(version: int, steps: Steps) -> None:
    _, bobs, sessions = staged(version)
    before = parties.blobs(bobs)
    keys = [ratchet_key(session) for session in sessions] + [curve.KeyPair.generate().public]
    for key in keys:
        for counter in (5, 2_000, 25_000):
            steps.made = 0
            with pytest.raises(e2ee.InvalidMessage):
                bobs.decrypt(e2ee.MESSAGE, garbage(version, key, counter, counter), refuses)
            assert steps.made <= 2 * 2 * (work.FREE_STEPS + 1)
    assert parties.blobs(bobs) == before


@pytest.mark.parametrize("version", parties.VERSIONS)
def test_only_long_jumps_and_untried_sessions_consume_the_budget(version: int) -> None:
    requested: list[int] = []

    def noted(steps: int) -> bool:
        requested.append(steps)
        return True

    _, bobs, sessions = staged(version, 3)
    # In order, with a few skipped, in an archived session, late: all of these are ordinary.
    late = sessions[-1].encrypt(b"late")
    for _ in range(work.FREE_STEPS - 1):
        sessions[-1].encrypt(b"lost")
    for kind, body in (sessions[-1].encrypt(b"after"), late, sessions[0].encrypt(b"archived")):
        assert bobs.decrypt(kind, body, noted)
    assert requested == []
    jump(sessions[0], 1_000)
    assert bobs.decrypt(*sessions[0].encrypt(b"far"), noted) == b"far"
    assert requested == [1_000] * (2 if version == 4 else 1)
    requested.clear()
    with pytest.raises(e2ee.InvalidMessage):
        bobs.decrypt(e2ee.MESSAGE, garbage(version, curve.KeyPair.generate().public, 0, 1_100), noted)
    assert requested.count(work.ARCHIVED_STEPS) == 2


def test_a_long_jump_in_a_group_needs_the_budget() -> None:
    group = sender_keys.SenderKeyRecord.create()
    member = sender_keys.SenderKeyRecord(group.distribution_id)
    member.process(group.distribution())
    groups.skip(group, work.FREE_STEPS)
    assert member.decrypt(group.encrypt(b"near"), refuses) == b"near"
    groups.skip(group, work.FREE_STEPS + 1)
    far = group.encrypt(b"far")
    before = member.to_bytes()
    with pytest.raises(e2ee.OverBudget):
        member.decrypt(far, refuses)
    assert member.to_bytes() == before
    assert member.decrypt(far) == b"far"
