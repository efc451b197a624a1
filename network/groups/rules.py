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
class GroupState:
    """A group and its members, in the order in which they joined."""

    chat: Chat
    members: tuple[Member, ...]

    def find(self, number: str) -> Member | None:
        """Return the participant with this number, `None` when it is not in the group."""
        return next((member for member in self.members if member.number == number), None)


@dataclasses.dataclass(frozen=True, slots=True)
class GroupAnnouncement:
    """Notice to every participant, and to those who have just left."""

    change: str
    by: str
    numbers: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The group after a change, and the notices about it."""

    state: GroupState
    announcements: tuple[GroupAnnouncement, ...] = ()


Rule = Callable[[GroupState], GroupOutcome]


def create(chat: Chat) -> GroupOutcome:
    """Create a group with its creator as admin."""
    first = Member(chat.creator, admin=True, position=chat.epoch)
    return GroupOutcome(GroupState(chat, (first,)), (GroupAnnouncement(groups.CREATED, chat.creator, (chat.creator,)),))


def join(state: GroupState, number: str) -> GroupOutcome:
    """Add a participant. Raises `BadRequest` when the group is full, `NotFound` when it has no participants left."""
    if state.find(number) is not None:
        return GroupOutcome(state)
    if not state.members:
        raise errors.NotFound("the group has no participants", reason=groups.NO_SUCH_INVITE)
    if len(state.members) >= groups.MAX_PARTICIPANTS:
        raise errors.BadRequest(
            f"the group has its maximum of {groups.MAX_PARTICIPANTS} participants", reason="group_full"
        )
    epoch = state.chat.epoch + 1
    # Each joining participant starts an epoch, whose number is its position in the order of joining.
    joined = (*state.members, Member(number, admin=False, position=epoch))
    return GroupOutcome(_with(state, joined, epoch), (GroupAnnouncement(groups.JOINED, number, (number,)),))


def leave(state: GroupState, number: str) -> GroupOutcome:
    """Remove a participant. When the last admin leaves, the longest-standing participant becomes admin."""
    if state.find(number) is None:
        return GroupOutcome(state)
    left = tuple(member for member in state.members if member.number != number)
    announcements = [GroupAnnouncement(groups.LEFT, number, (number,), gone=(number,))]
    if left and not any(member.admin for member in left):
        left = (dataclasses.replace(left[0], admin=True), *left[1:])
        announcements.append(GroupAnnouncement(groups.ADMINS, number, (left[0].number,)))
    return GroupOutcome(_with(state, left, state.chat.epoch + 1), tuple(announcements))


def remove(state: GroupState, by: str, numbers: Sequence[str]) -> GroupOutcome:
    """Remove participants. Raises `BadRequest` when an admin removes itself, and `Forbidden`."""
    require_admin(state, by)
    if by in numbers:
        raise errors.BadRequest("use leave to remove yourself")
    gone = tuple(member.number for member in state.members if member.number in set(numbers))
    if not gone:
        return GroupOutcome(state)
    left = tuple(member for member in state.members if member.number not in set(gone))
    return GroupOutcome(
        _with(state, left, state.chat.epoch + 1), (GroupAnnouncement(groups.REMOVED, by, gone, gone=gone),)
    )


def set_admins(state: GroupState, by: str, numbers: Sequence[str], *, admin: bool) -> GroupOutcome:
    """Promote or demote participants. Raises `BadRequest` when no admin would be left, and `Forbidden`."""
    changed = tuple(
        member.number for member in state.members if member.number in set(numbers) and member.admin != admin
    )
    if not changed and not admin and by in numbers:
        # A repetition: the caller has demoted itself.
        require_participant(state, by)
        return GroupOutcome(state)
    require_admin(state, by)
    if not changed:
        return GroupOutcome(state)
    members = tuple(
        dataclasses.replace(member, admin=admin) if member.number in set(changed) else member
        for member in state.members
    )
    if not any(member.admin for member in members):
        raise errors.BadRequest("the group needs at least one admin", reason="last_admin")
    return GroupOutcome(GroupState(state.chat, members), (GroupAnnouncement(groups.ADMINS, by, changed),))


def set_subject(state: GroupState, by: str, subject: str) -> GroupOutcome:
    """Set the subject. Raises `Forbidden`."""
    require_admin(state, by)
    if state.chat.subject == subject:
        return GroupOutcome(state)
    return GroupOutcome(
        GroupState(dataclasses.replace(state.chat, subject=subject), state.members),
        (GroupAnnouncement(groups.SUBJECT, by),),
    )


def set_code(state: GroupState, by: str, code: str) -> GroupOutcome:
    """Replace the invite code. Raises `Forbidden`."""
    require_admin(state, by)
    if state.chat.code == code:
        return GroupOutcome(state)
    return GroupOutcome(
        GroupState(dataclasses.replace(state.chat, code=code), state.members), (GroupAnnouncement(groups.INVITE, by),)
    )


def set_icon(state: GroupState, by: str, icon_type: str, *, same: bool) -> GroupOutcome:
    """Set the icon. Raises `Forbidden`.

    icon_type: MIME type; empty to remove the icon.
    same: the icon is unchanged.
    """
    require_admin(state, by)
    if same:
        return GroupOutcome(state)
    return GroupOutcome(
        GroupState(dataclasses.replace(state.chat, icon_type=icon_type), state.members),
        (GroupAnnouncement(groups.ICON, by),),
    )


def require_participant(state: GroupState, number: str) -> Member:
    """Return the participant. Raises `Forbidden` when it is not in the group."""
    member = state.find(number)
    if member is None:
        raise errors.Forbidden(f"+{number} is not in this group")
    return member


def require_admin(state: GroupState, number: str) -> None:
    """Require an admin of the group. Raises `Forbidden`."""
    if not require_participant(state, number).admin:
        raise errors.Forbidden(f"+{number} is not an admin of this group", reason=groups.NOT_ADMIN)


def _with(state: GroupState, members: tuple[Member, ...], epoch: int) -> GroupState:
    return GroupState(dataclasses.replace(state.chat, epoch=epoch), members)
