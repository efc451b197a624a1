"""The JSON of groups: bodies that are asked with, answers, and what notices say."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from network.groups.rules import ADMINS, ICON, MAX_PARTICIPANTS, Note, State
from tidings.storage.network.groups import Chat
from tidings.wire.addresses import Number

MAX_SUBJECT = 100


class Subject(msgspec.Struct):
    """POST /v1/groups/{number}, PUT /v1/groups/{number}/{group}"""

    subject: Annotated[str, Meta(min_length=1, max_length=MAX_SUBJECT)]


class Invite(msgspec.Struct):
    """POST /v1/groups/{number}/join"""

    code: Annotated[str, Meta(min_length=1, max_length=32)]


class Members(msgspec.Struct):
    """DELETE …/participants, PUT and DELETE …/admins"""

    numbers: Annotated[list[Number], Meta(max_length=MAX_PARTICIPANTS)]


def show(state: State) -> dict[str, Any]:
    """A group with those who are in it."""
    participants = [{"number": member.number, "admin": member.admin} for member in state.members]
    return {**show_chat(state.chat), "participants": participants}


def show_chat(chat: Chat) -> dict[str, Any]:
    """A group."""
    return {
        "id": chat.id,
        "subject": chat.subject,
        "creator": chat.creator,
        "created_at": chat.created_at // 1000,
        "epoch": chat.epoch,
        "has_icon": bool(chat.icon_type),
    }


def notice(note: Note, state: State) -> bytes:
    """The body of a `group_changed` envelope; `state` is what the group is after the change."""
    body: dict[str, Any] = {
        "change": note.change,
        "by": note.by,
        "numbers": list(note.numbers),
        "subject": state.chat.subject,
        "epoch": state.chat.epoch,
    }
    if note.change == ADMINS:
        body["admins"] = [member.number for member in state.members if member.admin]
    elif note.change == ICON:
        body["has_icon"] = bool(state.chat.icon_type)
    return msgspec.json.encode(body)
