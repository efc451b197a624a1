"""Groups and their notices have one form for all writers and readers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from coreapp.groups import notices
from network.groups import schemas
from network.groups.rules import GroupAnnouncement, GroupState
from tidings.storage.network.groups import Chat, Member
from tidings.wire import groups
from tidings.wire.groups import DescribedGroup, GroupMembers, GroupNotice, GroupSubject, InviteCode, Participant

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data/wire/groups.json").read_text())
ANN, BEN = "15550000000", "15550100001"
CHAT = Chat("15550000000-1767225600", ANN, "Lunch", 1_767_225_600_000, 2, "code", "")
STATE = GroupState(CHAT, (Member(ANN, admin=True, position=1), Member(BEN, admin=False, position=2)))
WITH_ICON = GroupState(dataclasses.replace(CHAT, icon_type="image/png"), STATE.members)
BOTH_ADMINS = GroupState(CHAT, tuple(dataclasses.replace(member, admin=True) for member in STATE.members))
NOTES = {
    "created": (GroupAnnouncement(groups.CREATED, ANN, (ANN,)), STATE),
    "joined": (GroupAnnouncement(groups.JOINED, BEN, (BEN,)), STATE),
    "left": (GroupAnnouncement(groups.LEFT, BEN, (BEN,), (BEN,)), STATE),
    "removed": (GroupAnnouncement(groups.REMOVED, ANN, (BEN,), (BEN,)), STATE),
    "subject": (GroupAnnouncement(groups.SUBJECT, ANN), STATE),
    "icon set": (GroupAnnouncement(groups.ICON, ANN), WITH_ICON),
    "icon deleted": (GroupAnnouncement(groups.ICON, ANN), STATE),
    "admins": (GroupAnnouncement(groups.ADMINS, ANN, (BEN,)), BOTH_ADMINS),
    "invite": (GroupAnnouncement(groups.INVITE, ANN), STATE),
}
NAMED = [pytest.param(*NOTES[name], RECORDED[f"notice: {name}"], id=name) for name in NOTES]


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize(("note", "state", "recorded"), NAMED)
def test_a_notice_is_written_as_recorded_and_read_alike_by_device_and_business(
    note: GroupAnnouncement, state: GroupState, recorded: dict[str, Any]
) -> None:
    assert schemas.notice(note, state) == text(recorded)
    read = groups.decode_notice(text(recorded))
    assert read == GroupNotice(**recorded)
    theirs = notices.read(text(recorded))
    assert theirs is not None
    assert msgspec.structs.asdict(theirs) == msgspec.structs.asdict(read)


def test_a_business_accepts_an_incomplete_notice_and_a_device_rejects_it() -> None:
    assert notices.read(b'{"change":"left"}') == notices.GroupChangeNotice("left")
    with pytest.raises(msgspec.ValidationError):
        groups.decode_notice(b'{"change":"left"}')
    more = text(RECORDED["notice: left"] | {"mood": "sad"})
    assert groups.decode_notice(more).change == groups.LEFT


def test_a_group_is_written_as_recorded_and_read_back() -> None:
    assert text(schemas.show(STATE)) == text(RECORDED["group"])
    group = msgspec.convert(RECORDED["group"], DescribedGroup)
    members = [Participant(ANN, admin=True), Participant(BEN, admin=False)]
    assert group == DescribedGroup(CHAT.id, "Lunch", ANN, 1_767_225_600, 2, participants=members)
    assert text(schemas.show_chat(WITH_ICON.chat)) == text(RECORDED["group in a list"])
    listed = msgspec.convert(RECORDED["group in a list"], DescribedGroup)
    assert listed == DescribedGroup(CHAT.id, "Lunch", ANN, 1_767_225_600, 2, has_icon=True)


@pytest.mark.parametrize(
    ("name", "body", "wrong"),
    [
        ("subject", GroupSubject("Lunch"), GroupSubject("")),
        ("subject", GroupSubject("Lunch"), GroupSubject("x" * 101)),
        ("join", InviteCode("Zm9v"), InviteCode("x" * 33)),
        ("numbers", GroupMembers([BEN]), GroupMembers(["+15550100001"])),
        ("numbers", GroupMembers([BEN]), GroupMembers([BEN] * 257)),
    ],
)
def test_a_group_request_body_is_written_as_recorded_and_validated(name: str, body: Any, wrong: Any) -> None:
    recorded = text(RECORDED[f"body: {name}"])
    assert msgspec.json.encode(body) == recorded
    assert msgspec.json.decode(recorded, type=type(body)) == body
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(wrong), type=type(wrong))
