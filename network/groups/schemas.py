"""Wire format of groups: descriptions and notices."""

from __future__ import annotations

from typing import Any

import msgspec

from network.groups.rules import GroupAnnouncement, GroupState
from tidings.storage.network.groups import Chat
from tidings.wire import groups
from tidings.wire.groups import DescribedGroup, GroupNotice, Participant


def show(state: GroupState) -> dict[str, Any]:
    """Return the description of a group with its participants."""
    return _show(state.chat, [Participant(member.number, member.admin) for member in state.members])


def show_chat(chat: Chat) -> dict[str, Any]:
    """Return the description of a group without its participants."""
    shown = _show(chat, [])
    del shown["participants"]
    return shown


def notice(announcement: GroupAnnouncement, state: GroupState) -> bytes:
    """Return the body of a `group_changed` envelope.

    state: the group after the change.
    """
    admins = [member.number for member in state.members if member.admin] if announcement.change == groups.ADMINS else []
    has_icon = bool(state.chat.icon_type) if announcement.change == groups.ICON else None
    chat = state.chat
    notice = GroupNotice(
        announcement.change, announcement.by, list(announcement.numbers), chat.subject, chat.epoch, admins, has_icon
    )
    return msgspec.json.encode(notice)


def _show(chat: Chat, participants: list[Participant]) -> dict[str, Any]:
    seconds, has_icon = chat.created_at // 1000, bool(chat.icon_type)
    described = DescribedGroup(chat.id, chat.subject, chat.creator, seconds, chat.epoch, has_icon, participants)
    shown: dict[str, Any] = msgspec.to_builtins(described)
    return shown
