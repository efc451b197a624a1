"""The pure decisions about groups."""

from __future__ import annotations

import dataclasses
import json

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from coreapp.groups import notices, own_keys
from coreapp.groups.notices import GroupChangeNotice, NoticeOutcome
from coreapp.sending import group_jobs
from coreapp.sending.group_jobs import Encrypted
from tests.coreapp import webhook_schemas
from tidings.client import sender_keys
from tidings.storage.business.groups import StoredGroup
from tidings.storage.business.jobs import Job, JobForm
from tidings.storage.business.sender_keys import GIVEN, LACKS
from tidings.wire import addresses, device

ME, ANN, BEN, CAT = "15550000000", "15550110001", "15550110002", "15550110003"
LUNCH = "15550000000-1700000000"
KNOWN = StoredGroup(ME, LUNCH, "Lunch", ME, 1_700_000_000, 3, ((ME, True), (ANN, False), (BEN, False)))


def apply(notice: GroupChangeNotice, known: StoredGroup | None = KNOWN) -> NoticeOutcome:
    return notices.apply(known, notice, ME, LUNCH, 1_700_000_005)


def said(change: str, epoch: int, *numbers: str, by: str = ANN, **more: object) -> GroupChangeNotice:
    return GroupChangeNotice(change, by, list(numbers), "Lunch", epoch, **more)  # type: ignore[arg-type]


def numbers_of(group: StoredGroup | None) -> list[str]:
    assert group is not None
    return [number for number, _ in group.participants]


def test_group_ids_are_distinguished_from_numbers() -> None:
    assert addresses.names_group(LUNCH)
    assert not addresses.names_group(ANN)


@pytest.mark.parametrize(
    ("notice", "expected"),
    [
        (said("joined", 4, CAT), [ME, ANN, BEN, CAT]),
        (said("left", 4, BEN), [ME, ANN]),
        (said("removed", 4, ANN, BEN), [ME]),
    ],
)
def test_a_consecutive_change_is_applied_completely(notice: GroupChangeNotice, expected: list[str]) -> None:
    outcome = apply(notice)
    assert outcome.group is not None
    assert (outcome.is_whole, outcome.group.epoch, numbers_of(outcome.group)) == (True, 4, expected)


def test_a_change_after_a_missed_one_is_applied_and_the_group_fetched() -> None:
    outcome = apply(said("left", 6, BEN))
    assert (outcome.is_whole, numbers_of(outcome.group)) == (False, [ME, ANN])


@pytest.mark.parametrize("notice", [said("left", 6, BEN), said("joined", 6, CAT), said("admins", 6, ANN, admins=[ANN])])
def test_an_incomplete_change_does_not_advance_the_epoch(
    notice: GroupChangeNotice,
) -> None:
    # The network accepts nothing for another epoch, and the comparison at the next login finds the difference.
    outcome = apply(notice)
    assert outcome.group is not None
    assert (outcome.is_whole, outcome.group.epoch) == (False, KNOWN.epoch)


@pytest.mark.parametrize("notice", [said("joined", 3, CAT), said("left", 2, ANN), said("removed", 3, ANN)])
def test_a_known_change_is_ignored(notice: GroupChangeNotice) -> None:
    assert apply(notice) == NoticeOutcome(KNOWN, is_whole=True)


def test_the_business_can_be_removed_and_join_again() -> None:
    gone = apply(said("removed", 4, ME)).group
    assert gone is not None
    assert not gone.is_member
    back = apply(said("joined", 5, ME), gone).group
    assert back is not None
    assert (back.is_member, numbers_of(back)) == (True, [ANN, BEN, ME])


def test_admins_subject_and_icon_changes_are_applied() -> None:
    group = apply(said("admins", 3, ANN, admins=[ANN])).group
    assert group is not None
    assert group.participants == ((ME, False), (ANN, True), (BEN, False))
    assert apply(GroupChangeNotice("subject", ANN, [], "Brunch", 3)) == NoticeOutcome(
        dataclasses.replace(KNOWN, subject="Brunch"), is_whole=True
    )
    assert apply(said("icon", 3, has_icon=True)) == NoticeOutcome(
        dataclasses.replace(KNOWN, has_icon=True), is_whole=True
    )


def test_a_created_group_comes_from_its_notice_and_an_unknown_one_is_fetched() -> None:
    made = apply(GroupChangeNotice("created", ME, [ME], "Lunch", 1), None)
    assert made == NoticeOutcome(StoredGroup(ME, LUNCH, "Lunch", ME, 1_700_000_005, 1, ((ME, True),)), is_whole=True)
    assert apply(said("joined", 2, ME), None) == NoticeOutcome(None, is_whole=False)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"\xff", b'{"change": 5}', b'{"change": "left", "numbers": "all"}', b'{"change": "\xff"}'),
        pytest.param(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="nested"),
    ],
)
def test_reading_an_invalid_notice_returns_none(body: bytes) -> None:
    assert notices.read(body) is None


def test_a_change_of_an_unknown_kind_is_not_reported() -> None:
    assert notices.system(said("painted", 4), LUNCH) is None


CHANGES = st.sampled_from(["created", "joined", "left", "removed", "subject", "icon", "admins", "invite"])
NUMBERS = st.lists(st.sampled_from([ME, ANN, BEN, CAT]), min_size=1, unique=True)


@hypothesis.given(CHANGES, NUMBERS, NUMBERS, st.sampled_from([None, True, False]), st.text(min_size=1))
def test_every_change_is_reported_according_to_the_schema(
    change: str, numbers: list[str], admins: list[str], has_icon: bool | None, subject: str
) -> None:
    notice = GroupChangeNotice(change, ANN, numbers, subject, 4, admins, has_icon)
    said = notices.system(notice, LUNCH)
    assert said is not None
    entry = {
        "from": ANN,
        "id": "group_changed.1",
        "timestamp": "1700000000",
        "type": "system",
        "group_id": LUNCH,
        "system": msgspec.to_builtins(said),
    }
    body = {"contacts": [{"profile": {"name": ANN}, "wa_id": ANN}], "messages": [entry]}
    webhook_schemas.check(json.loads(json.dumps(body)))


STATES = st.sampled_from([GIVEN, LACKS, "job-1"])
HOLDERS = st.dictionaries(st.sampled_from([ANN, BEN, CAT]), STATES)


@hypothesis.given(HOLDERS, st.lists(st.sampled_from([ANN, BEN, CAT]), unique=True))
def test_a_sender_key_is_usable_only_if_exactly_the_members_have_it(
    holders: dict[str, str], members: list[str]
) -> None:
    usable = not (
        sender_keys.must_be_replaced(holders, members)
        or own_keys.without(holders, members)
        or own_keys.under_way(holders)
    )
    assert usable == (holders == dict.fromkeys(members, GIVEN))


@hypothesis.given(st.integers(0, 2**63), st.binary(max_size=300), st.binary(max_size=300))
def test_an_encrypted_group_message_body_round_trips(epoch: int, content: bytes, ciphertext: bytes) -> None:
    encrypted = Encrypted(epoch, content, ciphertext)
    assert group_jobs.unpack(group_jobs.pack(encrypted)) == encrypted
    job = Job("m1", 0, ME, LUNCH, JobForm.ENCRYPTED, group_jobs.MESSAGE, group_jobs.pack(encrypted), 1, "r1")
    envelope = group_jobs.envelope_of(job, ME, ttl=0)
    assert (envelope.kind, envelope.to, envelope.body, envelope.epoch, envelope.trace) == (
        device.GROUP,
        LUNCH,
        ciphertext,
        epoch,
        "r1",
    )


def test_a_read_receipt_names_its_group() -> None:
    job = Job("r1", 0, ME, ANN, JobForm.ENCRYPTED, group_jobs.READ, group_jobs.pack_read(LUNCH, ["a", "b"]), 1)
    envelope = group_jobs.envelope_of(job, ME, ttl=0)
    assert (envelope.kind, envelope.to, envelope.refs, envelope.group) == (device.READ, ANN, ["a", "b"], LUNCH)
