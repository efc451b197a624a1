"""Decisions about sender keys of groups, on real records."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from tidings import e2ee
from tidings.client import sender_keys


def test_an_accepted_sender_key_reads_later_messages_once_each() -> None:
    own = sender_keys.replace(None)
    own.encrypt(b"before")
    given = own.distribution()
    record = sender_keys.add_key(None, given)
    body = own.encrypt(b"after")
    assert sender_keys.read(record, body) == b"after"
    assert sender_keys.add_key(record, given) is record
    with pytest.raises(e2ee.DuplicateMessage):
        sender_keys.read(record, body)


def test_a_message_without_a_known_sender_key_raises_no_session() -> None:
    own, other = sender_keys.replace(None), sender_keys.replace(None)
    record = sender_keys.add_key(None, other.distribution())
    for known in (None, record):
        with pytest.raises(e2ee.NoSession):
            sender_keys.read(known, own.encrypt(b"x"))
    # Another chain of the same sender.
    renewed = sender_keys.replace(other)
    with pytest.raises(e2ee.NoSession):
        sender_keys.read(record, renewed.encrypt(b"x"))
    with pytest.raises(e2ee.InvalidMessage):
        sender_keys.read(record, b"nonsense")


def test_a_new_sender_key_replaces_that_of_a_restarted_sender() -> None:
    first, second = sender_keys.replace(None), sender_keys.replace(None)
    record = sender_keys.add_key(None, first.distribution())
    again = sender_keys.add_key(record, second.distribution())
    assert again is not record
    assert sender_keys.read(again, second.encrypt(b"new")) == b"new"
    assert sender_keys.read(record, first.encrypt(b"old")) == b"old"


def test_an_invalid_sender_key_changes_nothing() -> None:
    own = sender_keys.replace(None)
    record = sender_keys.add_key(None, own.distribution())
    before = record.to_bytes()
    with pytest.raises(e2ee.E2EEError):
        sender_keys.add_key(record, b"nonsense")
    assert record.to_bytes() == before


def test_a_replaced_sender_key_keeps_its_id_and_is_unreadable_with_the_old_key() -> None:
    old = sender_keys.replace(None)
    record = sender_keys.add_key(None, old.distribution())
    new = sender_keys.replace(old)
    assert (new.distribution_id, new.is_portable) == (old.distribution_id, True)
    body = new.encrypt(b"x")
    with pytest.raises(e2ee.NoSession):
        sender_keys.read(record, body)
    assert sender_keys.read(sender_keys.add_key(record, new.distribution()), new.encrypt(b"y")) == b"y"


NAMES = st.sets(st.sampled_from(["ann", "ben", "cat", "dot"]))


@hypothesis.given(NAMES, NAMES)
def test_after_distribution_exactly_the_members_hold_the_sender_key(holders: set[str], members: set[str]) -> None:
    if sender_keys.must_be_replaced(holders, members):
        assert holders - members
        holders = set()
    given = sender_keys.members_without_key(holders, sorted(members))
    assert given == sorted(members - holders)
    assert holders | set(given) == members
