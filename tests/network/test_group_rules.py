"""What holds of every group, whatever is asked of it in whatever order."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from network import errors
from network.groups import rules, schemas
from network.groups.rules import Outcome, State
from tidings.storage.network.groups import Chat
from tidings.wire.groups import MAX_PARTICIPANTS

NUMBERS = [f"1555000000{i}" for i in range(6)]
CHAT = Chat(f"{NUMBERS[0]}-5", NUMBERS[0], "Lunch", 5000, 1, "code", "")

Ask = Callable[[State], Outcome]

number = st.sampled_from(NUMBERS)
several = st.lists(number, max_size=4)


def _asks() -> st.SearchStrategy[Ask]:
    def ask(rule: Callable[..., Outcome], **more: object) -> Ask:
        return lambda state: rule(state, **more)

    return st.one_of(
        st.builds(lambda n: ask(rules.join, number=n), number),
        st.builds(lambda n: ask(rules.leave, number=n), number),
        st.builds(lambda by, ns: ask(rules.remove, by=by, numbers=ns), number, several),
        st.builds(lambda by, ns, a: ask(rules.set_admins, by=by, numbers=ns, admin=a), number, several, st.booleans()),
        st.builds(lambda by, s: ask(rules.set_subject, by=by, subject=s), number, st.sampled_from("abc")),
        st.builds(lambda by, c: ask(rules.set_code, by=by, code=c), number, st.sampled_from("abc")),
    )


def names(state: State) -> set[str]:
    return {member.number for member in state.members}


@given(st.lists(_asks(), max_size=40))
def test_a_group_keeps_an_admin_and_its_epoch_tells_of_everybody_who_comes_and_goes(asks: list[Ask]) -> None:
    state = rules.create(CHAT).state
    for ask in asks:
        try:
            outcome = ask(state)
        except errors.RequestError:
            continue
        before, state = state, outcome.state
        assert state.chat.epoch == before.chat.epoch + (names(before) != names(state))
        assert not state.members or any(member.admin for member in state.members)
        assert len(names(state)) == len(state.members) <= MAX_PARTICIPANTS
        positions = [member.position for member in state.members]
        assert positions == sorted(set(positions))
        # Whoever is gone is told, and nobody is told of nothing.
        assert {gone for note in outcome.notes for gone in note.gone} == names(before) - names(state)
        assert bool(outcome.notes) == (before != state)
        for note in outcome.notes:
            assert len(schemas.notice(note, state)) < 16_384
        if before != state:
            try:
                again = ask(state)
            except errors.RequestError:
                continue
            # Asked for again, as after a lost answer, there is nothing to do.
            assert (again.state, again.notes) == (state, ())


def test_the_largest_notice_of_the_largest_group_fits_into_an_envelope() -> None:
    state = rules.create(CHAT).state
    for i in range(MAX_PARTICIPANTS - 1):
        state = rules.join(state, f"{100_000_000_000_000 + i}").state
    everybody = [member.number for member in state.members]
    outcome = rules.set_admins(state, NUMBERS[0], everybody, admin=True)
    (note,) = outcome.notes
    assert len(schemas.notice(note, outcome.state)) < 16_384
