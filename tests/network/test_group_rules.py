"""Invariants of every group under any sequence of requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from network import errors
from network.groups import kept_messages, rules, schemas
from network.groups.kept_messages import count_fitting
from network.groups.memberships import TYPICAL_SIZE, AddressedGroup, Memberships, find_refusal, readers
from network.groups.rules import GroupOutcome, GroupState
from tests import statements
from tests.conftest import DatabaseFactory
from tidings.storage.network import groups
from tidings.storage.network.groups import Chat, Member
from tidings.wire import device
from tidings.wire.groups import MAX_PARTICIPANTS

NUMBERS = [f"1555000000{i}" for i in range(6)]
CHAT = Chat(f"{NUMBERS[0]}-5", NUMBERS[0], "Lunch", 5000, 1, "code", "")

Change = Callable[[GroupState], GroupOutcome]

number = st.sampled_from(NUMBERS)
several = st.lists(number, max_size=4)


def _changes() -> st.SearchStrategy[Change]:
    def change(rule: Callable[..., GroupOutcome], **more: object) -> Change:
        return lambda state: rule(state, **more)

    return st.one_of(
        st.builds(lambda n: change(rules.join, number=n), number),
        st.builds(lambda n: change(rules.leave, number=n), number),
        st.builds(lambda by, ns: change(rules.remove, by=by, numbers=ns), number, several),
        st.builds(
            lambda by, ns, a: change(rules.set_admins, by=by, numbers=ns, admin=a), number, several, st.booleans()
        ),
        st.builds(lambda by, s: change(rules.set_subject, by=by, subject=s), number, st.sampled_from("abc")),
        st.builds(lambda by, c: change(rules.set_code, by=by, code=c), number, st.sampled_from("abc")),
    )


def names(state: GroupState) -> set[str]:
    return {member.number for member in state.members}


@given(st.lists(_changes(), max_size=40))
def test_a_group_keeps_an_admin_and_its_epoch_counts_membership_changes(changes: list[Change]) -> None:
    state = rules.create(CHAT).state
    for change in changes:
        try:
            outcome = change(state)
        except errors.RequestError:
            continue
        before, state = state, outcome.state
        assert state.chat.epoch == before.chat.epoch + (names(before) != names(state))
        assert not state.members or any(member.admin for member in state.members)
        assert change(state) == GroupOutcome(state), "a repetition has no effect"
        assert len(names(state)) == len(state.members) <= MAX_PARTICIPANTS
        positions = [member.position for member in state.members]
        assert positions == sorted(set(positions))
        # Each removed participant is notified, and no notice is sent when nothing changed.
        assert {gone for announcement in outcome.announcements for gone in announcement.gone} == names(before) - names(
            state
        )
        assert bool(outcome.announcements) == (before != state)
        for announcement in outcome.announcements:
            assert len(schemas.notice(announcement, state)) < 16_384
        if before != state:
            try:
                again = change(state)
            except errors.RequestError:
                continue
            # A repeated request, as after a lost response, changes nothing.
            assert (again.state, again.announcements) == (state, ())


def test_an_admin_may_repeat_its_own_demotion() -> None:
    first, other, third = NUMBERS[:3]
    state = rules.join(rules.join(rules.create(CHAT).state, other).state, third).state
    state = rules.set_admins(state, first, [other], admin=True).state
    demoted = rules.set_admins(state, first, [first, third], admin=False).state
    assert rules.set_admins(demoted, first, [first, third], admin=False) == GroupOutcome(demoted)
    for numbers in ([other], [first, other]):
        with pytest.raises(errors.Forbidden):
            rules.set_admins(demoted, first, numbers, admin=False)
    with pytest.raises(errors.Forbidden):
        rules.set_admins(demoted, NUMBERS[3], [NUMBERS[3]], admin=False)


def test_the_largest_notice_of_the_largest_group_fits_into_an_envelope() -> None:
    state = rules.create(CHAT).state
    for i in range(MAX_PARTICIPANTS - 1):
        state = rules.join(state, f"{100_000_000_000_000 + i}").state
    everybody = [member.number for member in state.members]
    outcome = rules.set_admins(state, NUMBERS[0], everybody, admin=True)
    (announcement,) = outcome.announcements
    assert len(schemas.notice(announcement, outcome.state)) < 16_384


def test_a_message_is_judged_by_membership_and_epoch() -> None:
    alice, bob, carol, dave = NUMBERS[:4]
    chat = Chat(f"{alice}-5", alice, "Lunch", 5000, 7, "code", "")
    group = AddressedGroup(chat, [alice, bob, carol], {carol: {alice}})
    frame = device.Send(1, alice, chat.id, "m", device.GROUP, epoch=7)
    assert find_refusal(frame, group) == ("", "")
    assert readers(frame, group) == [bob]
    assert find_refusal(frame, None)[0] == device.NO_SUCH_GROUP
    outsider = device.Send(1, dave, chat.id, "m", device.GROUP, epoch=7)
    assert find_refusal(outsider, group)[0] == device.NOT_PARTICIPANT
    assert find_refusal(device.Send(1, bob, chat.id, "m", device.GROUP, epoch=6), group)[0] == device.STALE_GROUP


def test_one_transaction_is_limited_in_copies_and_bytes_but_takes_one_message() -> None:
    assert count_fitting([]) == 0
    assert count_fitting([(10 * kept_messages.COPIES, 2 * kept_messages.BYTES)]) == 1
    assert count_fitting([(1, 0)] * 2 * kept_messages.COPIES) == kept_messages.COPIES
    assert count_fitting([(2, kept_messages.BYTES // 4)] * 5) == 2


async def test_group_membership_is_read_once_per_epoch(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    memberships = Memberships(remembered=4)
    chats = {id_: Chat(id_, NUMBERS[0], "Lunch", 5000, 1, id_, "") for id_ in ("a", "b")}

    async def read(*ids: str) -> tuple[dict[str, list[str]], int]:
        with statements.recorded("FROM group_chat_members") as noted:
            async with database.reading() as connection:
                found = await memberships.list(connection, {id_: chats[id_] for id_ in ids})
            return {id_: list(numbers) for id_, numbers in found.items()}, len(noted)

    async with database.transaction() as connection:
        for chat in chats.values():
            await groups.add(connection, chat)
            await groups.put_members(connection, chat.id, [Member(number, False, 1) for number in NUMBERS[:2]])
    assert await read("a", "b") == ({"a": NUMBERS[:2], "b": NUMBERS[:2]}, 1)
    assert await read("a", "b") == ({"a": NUMBERS[:2], "b": NUMBERS[:2]}, 0)
    async with database.transaction() as connection:
        await groups.put_members(connection, "a", [Member(NUMBERS[2], False, 2)])
        await groups.set_epoch(connection, "a", 2)
    chats["a"] = Chat("a", NUMBERS[0], "Lunch", 5000, 2, "a", "")
    assert await read("a") == ({"a": NUMBERS[:3]}, 1)
    # The cache had no room for both.
    assert await read("a") == ({"a": NUMBERS[:3]}, 0)
    assert (memberships.size_of("a"), memberships.size_of("b")) == (3, TYPICAL_SIZE)
    assert await read("b") == ({"b": NUMBERS[:2]}, 1)


async def test_a_group_has_changed_until_a_message_is_recorded_and_after_each_change_or_eviction(
    database_factory: DatabaseFactory,
) -> None:
    database = await database_factory("network")
    memberships = Memberships(remembered=3)
    chat = Chat("a", NUMBERS[0], "Lunch", 5000, 1, "a", "")
    other = dataclasses.replace(chat, id="b", code="b")

    async def read(*some: Chat) -> None:
        async with database.reading() as connection:
            await memberships.list(connection, {each.id: each for each in some})

    async with database.transaction() as connection:
        for each in (chat, other):
            await groups.add(connection, each)
            await groups.put_members(connection, each.id, [Member(number, False, 1) for number in NUMBERS[:2]])
    await read(chat)
    assert memberships.has_changed(chat)
    memberships.note_message(chat)
    assert not memberships.has_changed(chat)
    for changed in (
        dataclasses.replace(chat, subject="Dinner"),
        dataclasses.replace(chat, code="c"),
        dataclasses.replace(chat, icon_type="image/png"),
        dataclasses.replace(chat, epoch=2),
    ):
        assert memberships.has_changed(changed)
    # A message of an epoch that is no longer in the cache is not recorded.
    await read(dataclasses.replace(chat, epoch=2))
    memberships.note_message(chat)
    assert memberships.has_changed(dataclasses.replace(chat, epoch=2))
    await read(chat)
    memberships.note_message(chat)
    # Four participants are too many for the cache.
    await read(other)
    assert memberships.has_changed(chat)
