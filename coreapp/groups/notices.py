"""Notices of the network about a changed group: their effect on our copy, and the content for the webhook."""

from __future__ import annotations

import dataclasses

import msgspec

from tidings.storage.business.groups import StoredGroup
from tidings.wire import groups
from tidings.wire.decoding import UNREADABLE
from tidings.wire.groups import GroupNotice


class GroupChangeNotice(GroupNotice, frozen=True):
    """One change. All fields but its kind may be missing: a group about which too little is known is fetched."""

    by: str = ""
    numbers: list[str] = msgspec.field(default_factory=list)
    subject: str = ""
    epoch: int = 0


class SystemContent(msgspec.Struct, omit_defaults=True, gc=False):
    """Content of the webhook's `system` object."""

    type: str
    body: str
    group_id: str
    operator: str
    users: list[str] = []


_decode = msgspec.json.Decoder(GroupChangeNotice).decode


def read(body: bytes) -> GroupChangeNotice | None:
    """Return the notice; None for an unreadable one."""
    try:
        return _decode(body)
    except UNREADABLE:
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class NoticeOutcome:
    """Effect of a notice."""

    group: StoredGroup | None  # our copy after the change; None while nothing is known
    is_whole: bool  # whether the group need not be fetched


def apply(known: StoredGroup | None, notice: GroupChangeNotice, account: str, group_id: str, now: int) -> NoticeOutcome:
    """Return the effect of a notice on our copy.

    now: Unix seconds
    """
    if notice.change == groups.CREATED:
        if known is not None:
            return NoticeOutcome(known, is_whole=True)
        participants = ((notice.by, True),)
        made = StoredGroup(account, group_id, notice.subject, notice.by, now, notice.epoch, participants)
        return NoticeOutcome(made, is_whole=notice.by == account)
    if known is None:
        return NoticeOutcome(None, is_whole=False)
    if notice.epoch < known.epoch:
        # The copy was fetched after this change and includes it.
        return NoticeOutcome(known, is_whole=True)
    moves = notice.change in (groups.JOINED, *groups.GONE)
    follows = notice.epoch == known.epoch + 1 if moves else notice.epoch == known.epoch
    if moves and notice.epoch == known.epoch:
        return NoticeOutcome(known, is_whole=True)
    # After a gap the list of participants may be wrong. It then keeps the old epoch, even if it is never completed.
    epoch = notice.epoch if follows else known.epoch
    return NoticeOutcome(_changed(known, notice, account, epoch), is_whole=follows and notice.subject != "")


def _changed(known: StoredGroup, notice: GroupChangeNotice, account: str, epoch: int) -> StoredGroup:
    about = set(notice.numbers)
    participants = list(known.participants)
    is_member = known.is_member
    if notice.change == groups.JOINED:
        present = {number for number, _ in participants}
        participants += [(number, False) for number in notice.numbers if number not in present]
        is_member = is_member or account in about
    elif notice.change in groups.GONE:
        participants = [entry for entry in participants if entry[0] not in about]
        is_member = is_member and account not in about
    elif notice.change == groups.ADMINS:
        participants = [(number, number in notice.admins) for number, _ in participants]
    return dataclasses.replace(
        known,
        subject=notice.subject or known.subject,
        epoch=epoch,
        participants=tuple(participants),
        has_icon=known.has_icon if notice.has_icon is None else notice.has_icon,
        is_member=is_member,
    )


# Type, text and whether the users are listed, by kind of change.
_SYSTEM = {
    groups.CREATED: ("group_created", "{who} created the group {subject}", False),
    groups.JOINED: ("group_user_joined", "{whom} joined", True),
    groups.LEFT: ("group_user_left", "{whom} left", True),
    groups.REMOVED: ("group_user_left", "{who} removed {whom}", True),
    groups.SUBJECT: ("group_subject_changed", "{who} changed the subject to {subject}", False),
    groups.ICON: ("group_icon_changed", "{who} changed the icon", False),
    groups.ADMINS: ("group_user_demoted", "{who} demoted {whom} from admin", True),
    groups.INVITE: ("group_invite_link_revoked", "{who} revoked the invite link", False),
}


def system(notice: GroupChangeNotice, group_id: str) -> SystemContent | None:
    """Return the content that describes a change; None for an unknown kind of change."""
    if notice.change not in _SYSTEM:
        return None
    kind, text, lists_users = _SYSTEM[notice.change]
    if notice.change == groups.ICON and notice.has_icon is False:
        kind, text = "group_icon_deleted", "{who} deleted the icon"
    elif notice.change == groups.ADMINS and set(notice.numbers) <= set(notice.admins):
        kind, text = "group_user_promoted", "{who} made {whom} an admin"
    whom = ", ".join(f"+{number}" for number in notice.numbers)
    body = text.format(who=f"+{notice.by}", whom=whom, subject=notice.subject)
    return SystemContent(kind, body, group_id, notice.by, notice.numbers if lists_users else [])
