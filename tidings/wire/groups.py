"""Group data of the device API: bodies of HTTP calls, and notices of changes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tidings.wire import device
from tidings.wire.addresses import Number

MAX_PARTICIPANTS = 256
MAX_SUBJECT = 100  # characters

# Changes of a `GroupNotice`.
CREATED, JOINED, LEFT, REMOVED = "created", "joined", "left", "removed"
GONE = (LEFT, REMOVED)
SUBJECT, ICON, ADMINS, INVITE = "subject", "icon", "admins", "invite"

# Reasons of refused calls.
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
    """Participant of a group."""

    number: str
    admin: bool = False


class DescribedGroup(msgspec.Struct, gc=False):
    """Group as the network returns it."""

    id: str
    subject: str
    creator: str
    created_at: int  # Unix seconds
    epoch: int  # increases when a participant joins or leaves
    has_icon: bool = False
    participants: list[Participant] = []  # participants by time of joining; empty in the list of all groups


class GroupNotice(msgspec.Struct, gc=False, frozen=True, omit_defaults=True):
    """Body of a `group_changed` envelope."""

    change: str  # one of the changes above
    by: str  # number that made the change
    numbers: list[str]  # numbers that the change concerns
    subject: str  # subject after the change
    epoch: int  # epoch after the change
    admins: list[str] = []  # all admins after a change of admins; empty for other changes
    has_icon: bool | None = None  # value after a change of the icon; None for other changes


decode_notice = msgspec.json.Decoder(GroupNotice).decode
