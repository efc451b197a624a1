"""Rules of groups as pure functions: effects of a change, and the permissions it needs.

Every change is idempotent: repeated, it has no effect and notifies no participant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from network import errors
from tidings.storage.network.groups import Chat, Member
from tidings.wire import groups

MAX_GROUPS = 10_000  # Groups of one number.


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """A group and its members, in the order in which they joined."""

    chat: Chat
    members: tuple[Member, ...]

    def find(self, number: str) -> Member | None:
        """Return the participant with this number, `None` when it is not in the group."""
        return next((member for member in self.members if member.number == number), None)


@dataclasses.dataclass(frozen=True, slots=True)
class Note:
    """Notice to every participant, and to those who have just left."""

    change: str
    by: str
    numbers: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """The group after a change, and the notices about it."""

    state: State
    notes: tuple[Note, ...] = ()


Rule = Callable[[State], Outcome]


def create(chat: Chat) -> Outcome:
    """Create a group with its creator as admin."""
    first = Member(chat.creator, admin=True, position=chat.epoch)
    return Outcome(State(chat, (first,)), (Note(groups.CREATED, chat.creator, (chat.creator,)),))


def join(state: State, number: str) -> Outcome:
    """Add a participant. Raises `BadRequest` when the group is full, `NotFound` when it has no participants left."""
    if state.find(number) is not None:
        return Outcome(state)
    if not state.members:
        raise errors.NotFound("everybody has left this group", reason=groups.NO_SUCH_INVITE)
    if len(state.members) >= groups.MAX_PARTICIPANTS:
        raise errors.BadRequest(f"{groups.MAX_PARTICIPANTS} participants are in this group", reason="group_full")
    epoch = state.chat.epoch + 1
    # Each joining participant starts an epoch, whose number is its position in the order of joining.
    joined = (*state.members, Member(number, admin=False, position=epoch))
    return Outcome(_with(state, joined, epoch), (Note(groups.JOINED, number, (number,)),))


def leave(state: State, number: str) -> Outcome:
    """Remove a participant. When the last admin leaves, the longest-standing participant becomes admin."""
    if state.find(number) is None:
        return Outcome(state)
    left = tuple(member for member in state.members if member.number != number)
    notes = [Note(groups.LEFT, number, (number,), gone=(number,))]
    if left and not any(member.admin for member in left):
        left = (dataclasses.replace(left[0], admin=True), *left[1:])
        notes.append(Note(groups.ADMINS, number, (left[0].number,)))
    return Outcome(_with(state, left, state.chat.epoch + 1), tuple(notes))


def remove(state: State, by: str, numbers: Sequence[str]) -> Outcome:
    """Remove participants. Raises `BadRequest` when an admin removes itself, and `Forbidden`."""
    require_admin(state, by)
    if by in numbers:
        raise errors.BadRequest("to go oneself is to leave")
    gone = tuple(member.number for member in state.members if member.number in set(numbers))
    if not gone:
        return Outcome(state)
    left = tuple(member for member in state.members if member.number not in set(gone))
    return Outcome(_with(state, left, state.chat.epoch + 1), (Note(groups.REMOVED, by, gone, gone=gone),))


def set_admins(state: State, by: str, numbers: Sequence[str], *, admin: bool) -> Outcome:
    """Promote or demote participants. Raises `BadRequest` when no admin would be left, and `Forbidden`."""
    require_admin(state, by)
    changed = tuple(
        member.number for member in state.members if member.number in set(numbers) and member.admin != admin
    )
    if not changed:
        return Outcome(state)
    members = tuple(
        dataclasses.replace(member, admin=admin) if member.number in set(changed) else member
        for member in state.members
    )
    if not any(member.admin for member in members):
        raise errors.BadRequest("somebody has to remain admin", reason="last_admin")
    return Outcome(State(state.chat, members), (Note(groups.ADMINS, by, changed),))


def set_subject(state: State, by: str, subject: str) -> Outcome:
    """Set the subject. Raises `Forbidden`."""
    require_admin(state, by)
    if state.chat.subject == subject:
        return Outcome(state)
    return Outcome(State(dataclasses.replace(state.chat, subject=subject), state.members), (Note(groups.SUBJECT, by),))


def set_code(state: State, by: str, code: str) -> Outcome:
    """Replace the invite code. Raises `Forbidden`."""
    require_admin(state, by)
    if state.chat.code == code:
        return Outcome(state)
    return Outcome(State(dataclasses.replace(state.chat, code=code), state.members), (Note(groups.INVITE, by),))


def set_icon(state: State, by: str, icon_type: str, *, same: bool) -> Outcome:
    """Set the icon. Raises `Forbidden`.

    icon_type: MIME type; empty to remove the icon.
    same: the icon is unchanged.
    """
    require_admin(state, by)
    if same:
        return Outcome(state)
    return Outcome(State(dataclasses.replace(state.chat, icon_type=icon_type), state.members), (Note(groups.ICON, by),))


def require_participant(state: State, number: str) -> Member:
    """Return the participant. Raises `Forbidden` when it is not in the group."""
    member = state.find(number)
    if member is None:
        raise errors.Forbidden(f"{number} is not in this group")
    return member


def require_admin(state: State, number: str) -> None:
    """Require an admin of the group. Raises `Forbidden`."""
    if not require_participant(state, number).admin:
        raise errors.Forbidden(f"{number} is no admin of this group", reason=groups.NOT_ADMIN)


def _with(state: State, members: tuple[Member, ...], epoch: int) -> State:
    return State(dataclasses.replace(state.chat, epoch=epoch), members)
