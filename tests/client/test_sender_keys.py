"""Decisions about sender keys of groups, on real records."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from tidings import e2ee
from tidings.client import sender_keys


def test_a_key_that_was_taken_up_reads_what_follows_and_a_repeated_one_nothing_twice() -> None:
    own = sender_keys.replace(None)
    own.encrypt(b"before")
    given = own.distribution()
    record = sender_keys.take_up(None, given)
    body = own.encrypt(b"after")
    assert sender_keys.read(record, body) == b"after"
    assert sender_keys.take_up(record, given) is record
    with pytest.raises(e2ee.DuplicateMessage):
        sender_keys.read(record, body)


def test_without_the_key_of_a_message_its_sender_is_to_be_asked() -> None:
    own, other = sender_keys.replace(None), sender_keys.replace(None)
    record = sender_keys.take_up(None, other.distribution())
    for known in (None, record):
        with pytest.raises(e2ee.NoSession):
            sender_keys.read(known, own.encrypt(b"x"))
    # Another chain of the same sender.
    renewed = sender_keys.replace(other)
    with pytest.raises(e2ee.NoSession):
        sender_keys.read(record, renewed.encrypt(b"x"))
    with pytest.raises(e2ee.InvalidMessage):
        sender_keys.read(record, b"nonsense")


def test_a_sender_who_started_over_is_read_by_the_new_key_alone() -> None:
    first, second = sender_keys.replace(None), sender_keys.replace(None)
    record = sender_keys.take_up(None, first.distribution())
    again = sender_keys.take_up(record, second.distribution())
    assert again is not record
    assert sender_keys.read(again, second.encrypt(b"new")) == b"new"
    assert sender_keys.read(record, first.encrypt(b"old")) == b"old"


def test_what_is_no_key_changes_nothing() -> None:
    own = sender_keys.replace(None)
    record = sender_keys.take_up(None, own.distribution())
    before = record.to_bytes()
    with pytest.raises(e2ee.E2EEError):
        sender_keys.take_up(record, b"nonsense")
    assert record.to_bytes() == before


def test_a_replaced_key_keeps_its_name_and_nobody_who_had_the_old_one_reads_it() -> None:
    old = sender_keys.replace(None)
    record = sender_keys.take_up(None, old.distribution())
    new = sender_keys.replace(old)
    assert (new.distribution_id, new.is_portable) == (old.distribution_id, True)
    body = new.encrypt(b"x")
    with pytest.raises(e2ee.NoSession):
        sender_keys.read(record, body)
    assert sender_keys.read(sender_keys.take_up(record, new.distribution()), new.encrypt(b"y")) == b"y"


NAMES = st.sets(st.sampled_from(["ann", "ben", "cat", "dot"]))


@hypothesis.given(NAMES, NAMES)
def test_after_a_handover_everybody_in_the_group_has_the_key_and_nobody_else(
    holders: set[str], members: set[str]
) -> None:
    if sender_keys.must_be_replaced(holders, members):
        assert holders - members
        holders = set()
    given = sender_keys.lacking(holders, sorted(members))
    assert given == sorted(members - holders)
    assert holders | set(given) == members
