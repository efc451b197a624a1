"""Groups as the network and its devices tell of them: the bodies of calls, and the notices of changes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tidings.wire import device
from tidings.wire.addresses import Number

MAX_PARTICIPANTS = 256
MAX_SUBJECT = 100  # characters

# What a notice says has changed.
CREATED, JOINED, LEFT, REMOVED = "created", "joined", "left", "removed"
GONE = (LEFT, REMOVED)
SUBJECT, ICON, ADMINS, INVITE = "subject", "icon", "admins", "invite"

# Reasons for which the network refuses a call.
NO_SUCH_GROUP, NOT_PARTICIPANT = device.NO_SUCH_GROUP, device.NOT_PARTICIPANT
NO_SUCH_INVITE, NOT_ADMIN, NO_ICON = "no_such_invite", "not_admin", "no_icon"


class GroupSubject(msgspec.Struct, gc=False):
    """POST /v1/groups/{number}, PUT /v1/groups/{number}/{group}"""

    subject: Annotated[str, Meta(min_length=1, max_length=MAX_SUBJECT)]


class InviteCode(msgspec.Struct, gc=False):
    """POST /v1/groups/{number}/join"""

    code: Annotated[str, Meta(min_length=1, max_length=32)]


class GroupMembers(msgspec.Struct, gc=False):
    """DELETE …/participants, PUT and DELETE …/admins"""

    numbers: Annotated[list[Number], Meta(max_length=MAX_PARTICIPANTS)]


class Participant(msgspec.Struct, gc=False):
    """One who is in a group."""

    number: str
    admin: bool = False


class DescribedGroup(msgspec.Struct, gc=False):
    """A group as the network answers with it. created_at: Unix seconds; epoch: grows when somebody joins or leaves.

    participants: in the order of joining; left out of the list of all groups.
    """

    id: str
    subject: str
    creator: str
    created_at: int
    epoch: int
    has_icon: bool = False
    participants: list[Participant] = []


class GroupNotice(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """The body of a `group_changed` envelope.

    change: one of those above; by: who made it; numbers: whom it is about; subject, epoch: the group's after it;
    admins: all there are after it, of a change of admins; has_icon: of a change of the icon.
    """

    change: str
    by: str
    numbers: list[str]
    subject: str
    epoch: int
    admins: list[str] = []
    has_icon: bool | None = None


decode_notice = msgspec.json.Decoder(GroupNotice).decode
