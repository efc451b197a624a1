"""Any bytes lead to an E2EEError and nothing else, quickly. After a harmless change the plaintext is the
original."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.e2ee import groups, parties
from tidings import e2ee
from tidings.e2ee import attachments, messages

LONGEST = 0.5  # seconds; a forged jump of 25,000 messages is the slowest request of an unknown sender

PAIRS = {version: parties.settled(version) for version in parties.VERSIONS}
TEXT = b"text"
MESSAGES = [PAIRS[version].alices.encrypt(TEXT)[1] for version in parties.VERSIONS]
FIRSTS = [parties.Party(9).initiate(PAIRS[version].bob, version).encrypt(TEXT)[1] for version in parties.VERSIONS]
SEALER = e2ee.Sealer(e2ee.Keyring.from_master(bytes(32), 1))
SEALED = SEALER.seal(b"state", context=("account", "peer"))
GROUP = groups.group()
MEMBER = GROUP.member.to_bytes()
DISTRIBUTION = GROUP.sender.distribution()
GROUP_MESSAGES = [GROUP.sender.encrypt(TEXT) for _ in range(3)]
ATTACHMENT_KEY = bytes(64)
ATTACHMENT, ATTACHMENT_DIGEST = attachments.encrypt(ATTACHMENT_KEY, b"attachment")

fuzzed = settings(max_examples=300)


@pytest.fixture(scope="module", autouse=True)
def _uncollected() -> Iterator[None]:
    """Disable the interpreter GC: a collection takes longer, the more objects other tests have left."""
    gc.disable()
    yield
    gc.enable()


@st.composite
def mutated(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    """Return a real message with a few bytes changed, removed, or inserted."""
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 5))):
        position = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(["set", "insert", "cut", "truncate"])):
            case "set" if data:
                data[position] = draw(st.integers(0, 255))
            case "insert":
                data[position:position] = draw(st.binary(min_size=1, max_size=12))
            case "cut":
                del data[position : position + draw(st.integers(1, 40))]
            case "truncate":
                del data[position:]
    return bytes(data)


def give_to_everything(body: bytes) -> None:
    started = time.thread_time()
    for parse in (
        e2ee.SignalMessage.parse,
        e2ee.PreKeySignalMessage.parse,
        e2ee.GroupMessage.parse,
        e2ee.DistributionMessage.parse,
    ):
        with contextlib.suppress(e2ee.E2EEError):
            parse(body)
    member = e2ee.SenderKeyRecord.from_bytes(MEMBER)
    with contextlib.suppress(e2ee.E2EEError):
        assert member.decrypt(body) == TEXT
    with contextlib.suppress(e2ee.E2EEError):
        member.process(body)
    for pair in PAIRS.values():
        # Loaded from the blobs, so that one example does not change the next.
        record = parties.reload(pair.bob, pair.bobs)
        for kind in (e2ee.MESSAGE, e2ee.PREKEY):
            with contextlib.suppress(e2ee.E2EEError):
                assert record.decrypt(kind, body) == TEXT
        with contextlib.suppress(e2ee.E2EEError):
            _, plaintext = pair.bob.receive(None, e2ee.PREKEY, body)
            assert plaintext == TEXT
    assert time.thread_time() - started < LONGEST


@fuzzed
@given(body=st.binary(max_size=400))
def test_random_bytes_are_refused(body: bytes) -> None:
    give_to_everything(body)


@fuzzed
@given(body=st.binary(max_size=200), first=st.sampled_from([b"\x33", b"\x34", b"\x44"]))
def test_random_bytes_after_a_valid_first_byte_are_refused(body: bytes, first: bytes) -> None:
    give_to_everything(first + body)


@fuzzed
@given(body=mutated(MESSAGES))
def test_mutated_messages_are_refused(body: bytes) -> None:
    give_to_everything(body)


@fuzzed
@given(body=mutated(FIRSTS))
def test_mutated_first_messages_are_refused(body: bytes) -> None:
    give_to_everything(body)


@fuzzed
@given(blob=st.binary(max_size=100) | mutated([SEALED]))
def test_mutated_sealed_blobs_are_refused(blob: bytes) -> None:
    with contextlib.suppress(e2ee.CorruptState):
        assert SEALER.open(blob, ("account", "peer")) == b"state"
        assert blob == SEALED


@fuzzed
@given(data=st.data(), version=st.sampled_from(parties.VERSIONS))
def test_mutated_session_states_load_or_raise_corrupt_state(data: st.DataObject, version: int) -> None:
    pair = PAIRS[version]
    sending, receiving = parties.blobs(pair.bobs)
    if data.draw(st.booleans()):
        sending = data.draw(mutated([sending]))
    else:
        receiving = data.draw(mutated([receiving]))
    with contextlib.suppress(e2ee.E2EEError):
        record = e2ee.SessionRecord.load(pair.bob.identity, sending, receiving)
        record.encrypt(TEXT)
        assert record.decrypt(e2ee.MESSAGE, MESSAGES[parties.VERSIONS.index(version)]) == TEXT
        record.receiving_half()


@fuzzed
@given(body=mutated(GROUP_MESSAGES))
def test_mutated_group_messages_are_refused(body: bytes) -> None:
    give_to_everything(body)
    with contextlib.suppress(e2ee.E2EEError):
        assert e2ee.SenderKeyRecord.from_bytes(MEMBER).decrypt(body) == TEXT
        assert body in GROUP_MESSAGES


@fuzzed
@given(body=mutated([DISTRIBUTION]))
def test_mutated_distribution_messages_are_refused_or_stored_unchanged(body: bytes) -> None:
    give_to_everything(body)
    member = e2ee.SenderKeyRecord(groups.DISTRIBUTION_ID)
    with contextlib.suppress(e2ee.E2EEError):
        member.process(body)
        assert groups.reload(member).to_bytes() == member.to_bytes()


@fuzzed
@given(data=st.binary(max_size=300) | mutated([MEMBER, GROUP.sender.to_bytes()]))
def test_mutated_sender_key_records_load_or_raise_corrupt_state(data: bytes) -> None:
    try:
        record = e2ee.SenderKeyRecord.from_bytes(data)
    except e2ee.CorruptState:
        return
    with contextlib.suppress(e2ee.E2EEError):
        record.distribution()
        record.encrypt(TEXT)
    with contextlib.suppress(e2ee.E2EEError):
        record.decrypt(GROUP_MESSAGES[0])
    record.to_bytes()


@fuzzed
@given(blob=st.binary(max_size=200) | mutated([ATTACHMENT]))
def test_mutated_attachments_are_refused(blob: bytes) -> None:
    with contextlib.suppress(e2ee.InvalidMessage):
        assert attachments.decrypt(ATTACHMENT_KEY, ATTACHMENT_DIGEST, blob) == b"attachment"
        assert blob == ATTACHMENT


@fuzzed
@given(mutated(FIRSTS) | st.sampled_from(FIRSTS))
def test_the_receiver_reads_the_same_identity_as_the_network(body: bytes) -> None:
    claimed = messages.claimed_identity(body)
    try:
        read = e2ee.PreKeySignalMessage.parse(body).identity_key
    except e2ee.E2EEError:
        return
    assert claimed == read
