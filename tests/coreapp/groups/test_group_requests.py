"""Requests of a Webapp about groups, and the callbacks about changes of groups."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import DatabaseFactory
from tests.coreapp import webhook_schemas
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.group_scene import ANN, BEN, Scene, group_scene
from tidings.storage.business import sender_keys
from tidings.wire import core

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
NOWHERE = "15550000000-1"


@pytest.fixture
async def scene(world: World, database_factory: DatabaseFactory, tmp_path: Path) -> AsyncIterator[Scene]:
    async with group_scene(world, database_factory, tmp_path) as scene:
        yield scene
        for post in world.sink.posts:
            webhook_schemas.check(post.body)


def code(response: object) -> tuple[int, str]:
    assert isinstance(response, core.Refused), response
    return response.code, response.details


async def test_a_group_can_be_created_and_changed_with_a_callback_per_change(scene: Scene) -> None:
    group = await scene.create("Lunch")
    other = await scene.create("Dinner")
    listed = await scene.call(lambda n: core.ListGroups(n, BUSINESS))
    assert [entry.id for entry in listed.groups] == [group, other]
    assert f"{BUSINESS}-{listed.groups[0].created_at}" == group
    await scene.joined(group, ANN, BEN)
    for action, more in (
        (core.SET_SUBJECT, {"subject": "Brunch"}),
        (core.PROMOTE, {"numbers": [ANN]}),
        (core.DEMOTE, {"numbers": [ANN]}),
        (core.SET_ICON, {"icon": PNG}),
        (core.DELETE_ICON, {}),
        (core.REVOKE_INVITE, {}),
        (core.REMOVE, {"numbers": [BEN]}),
    ):
        assert isinstance(await scene.change(group, action, **more), core.Done), action
    found = await scene.describe(group)
    assert (found.subject, found.creator, found.participants, found.admins) == (
        "Brunch",
        BUSINESS,
        [BUSINESS, ANN],
        [BUSINESS],
    )
    await scene.until_webhook(lambda: len(scene.system()) == 11)
    assert [(entry["type"], entry.get("users")) for entry in scene.system() if entry["group_id"] == group] == [
        ("group_created", None),
        ("group_user_joined", [ANN]),
        ("group_user_joined", [BEN]),
        ("group_subject_changed", None),
        ("group_user_promoted", [ANN]),
        ("group_user_demoted", [ANN]),
        ("group_icon_changed", None),
        ("group_icon_deleted", None),
        ("group_invite_link_revoked", None),
        ("group_user_left", [BEN]),
    ]
    (renamed,) = [e for e in scene.bodies("messages") if e["system"]["type"] == "group_subject_changed"]
    assert (renamed["from"], renamed["group_id"]) == (BUSINESS, group)
    assert renamed["system"] == {
        "type": "group_subject_changed",
        "body": f"+{BUSINESS} changed the subject to Brunch",
        "group_id": group,
        "operator": BUSINESS,
    }


async def test_an_icon_is_returned_unchanged(scene: Scene) -> None:
    group = await scene.create()
    request = lambda n: core.GetGroupIcon(n, BUSINESS, group)  # noqa: E731
    assert code(await scene.call(request)) == (1006, "the group has no icon")
    assert code(await scene.change(group, core.DELETE_ICON)) == (1006, "the group has no icon")
    await scene.change(group, core.SET_ICON, icon=PNG)
    response = await scene.call(request)
    assert (response.kind, response.content) == ("image/png", PNG)


async def test_an_invite_link_starts_with_the_configured_url(scene: Scene) -> None:
    group = await scene.create()
    link = (await scene.call(lambda n: core.GetGroupInvite(n, BUSINESS, group))).link
    assert re.fullmatch(r"https://join\.tidings\.invalid/[A-Za-z0-9_-]{22}", link)
    await scene.restart(invite_url="https://chat.example.com/join")
    moved = (await scene.call(lambda n: core.GetGroupInvite(n, BUSINESS, group))).link
    assert moved == f"https://chat.example.com/join/{link.rpartition('/')[2]}"


async def test_a_revoked_invite_link_admits_nobody(scene: Scene) -> None:
    group = await scene.create()
    ann = await scene.member(ANN)
    request = lambda n: core.GetGroupInvite(n, BUSINESS, group)  # noqa: E731
    old = (await scene.call(request)).link
    await scene.change(group, core.REVOKE_INVITE)
    new = (await scene.call(request)).link
    assert old != new
    with pytest.raises(AssertionError, match="no_such_invite"):
        await ann.call("POST", "/join", {"code": old.rsplit("/", 1)[1]})
    await ann.join(group)


async def test_messages_to_a_group_the_business_left_are_refused(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    assert isinstance(await scene.change(group, core.LEAVE), core.Done)
    listed = await scene.call(lambda n: core.ListGroups(n, BUSINESS))
    assert listed.groups == []
    assert code(await scene.post(group))[0] == 1003
    assert code(await scene.call(lambda n: core.GetGroup(n, BUSINESS, group)))[0] == 1003
    assert code(await scene.change(group, core.LEAVE))[0] == 1003
    await ann.signals.until(lambda: "left" in ann.changes)


async def test_impossible_group_requests_are_refused_with_the_reason(scene: Scene) -> None:
    group = await scene.create()
    assert code(await scene.post(NOWHERE)) == (1006, "unknown group")
    assert code(await scene.call(lambda n: core.GetGroup(n, BUSINESS, NOWHERE))) == (1006, "unknown group")
    assert code(await scene.change(group, core.REMOVE, numbers=[ANN])) == (
        1009,
        f"wa_ids[0]: {ANN} is not a participant of the group",
    )
    assert code(await scene.change(group, core.REMOVE, numbers=[BUSINESS]))[0] == 1021
    assert code(await scene.change(group, core.DEMOTE, numbers=[BUSINESS]))[0] == 1009
    (ann,) = await scene.joined(group, ANN)
    await ann.call("GET", f"/{group}")
    await scene.change(group, core.PROMOTE, numbers=[ANN])
    await ann.call("DELETE", f"/{group}/admins", {"numbers": [BUSINESS]})
    assert code(await scene.change(group, core.SET_SUBJECT, subject="x"))[0] == 1019
    assert code(await scene.call(lambda n: core.GetGroupInvite(n, BUSINESS, group)))[0] == 1019


async def test_a_queued_message_fails_with_401_after_the_business_is_removed(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    await scene.change(group, core.PROMOTE, numbers=[ANN])
    link = scene.running.shard.link
    send = link.send
    link.send = lambda envelope: None  # type: ignore[method-assign]
    message = await scene.sent(group)
    await ann.call("DELETE", f"/{group}/participants", {"numbers": [BUSINESS]})
    await scene.until_webhook(lambda: scene.system()[-1]["type"] == "group_user_left")
    link.send = send  # type: ignore[method-assign]
    scene.running.shard.sending.transmitter.connected()
    await scene.until_webhook(lambda: bool(scene.statuses(message)))
    assert scene.statuses(message) == [("failed", group, None)]
    (status,) = [entry for entry in scene.bodies("statuses") if entry["id"] == message]
    assert (status["errors"][0]["code"], status["errors"][0]["title"]) == (401, "Group does not exist")


async def test_groups_changed_while_the_coreapp_was_stopped_are_found_again(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    await scene.running.stopped()
    async with scene.world.database.transaction() as connection:
        await connection.exec_driver_sql("DELETE FROM business_groups")
    async with scene.network_db.transaction() as connection:
        # Without the notices, too.
        await connection.exec_driver_sql("DELETE FROM envelopes")
    await scene.restart()
    book = scene.running.shard.groups.replicas
    while book.find(group) is None:
        await book.sync()
    message = await scene.sent(group)
    await scene.until_webhook(lambda: len(scene.statuses(message)) == 3)
    assert [text for _, text in ann.shown] == ["hello"]


async def test_a_key_restore_replaces_every_sender_key(scene: Scene) -> None:
    group = await scene.create()
    (ann,) = await scene.joined(group, ANN)
    first = await scene.sent(group, "one")
    await scene.until_webhook(lambda: len(scene.statuses(first)) == 3)
    async with scene.world.database.reading() as connection:
        (before,) = await sender_keys.list_own(connection, BUSINESS, [group])
    exported = await scene.call(lambda n: core.ExportKeys(n, BUSINESS, "a password of some length"))
    assert isinstance(exported, core.Exported), exported
    response = await scene.call(lambda n: core.RestoreKeys(n, BUSINESS, "a password of some length", exported.data))
    assert isinstance(response, core.Done), response
    await scene.world.owner(scene.running)
    async with scene.world.database.reading() as connection:
        assert await sender_keys.list_own(connection, BUSINESS, [group]) == []
        assert await sender_keys.list_holders(connection, BUSINESS, [group]) == []
    second = await scene.sent(group, "two")
    await ann.signals.until(lambda: len(ann.shown) == 2)
    assert [text for _, text in ann.shown] == ["one", "two"]
    assert ann.keys == 2
    await scene.until_webhook(lambda: len(scene.statuses(second)) == 3)
    async with scene.world.database.reading() as connection:
        (after,) = await sender_keys.list_own(connection, BUSINESS, [group])
    assert before.record != after.record
