"""Permissions in groups, and who is notified of each change."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from network.devices.registrations import Registrations
from network.groups import rules
from tests.manual_clock import ManualClock
from tests.network.group_support import call, changes, code_of, done, make, participants, refused, words
from tests.network.support import ALICE, BOB, CAROL, DAVE, Client, Network
from tidings.storage.database import Database
from tidings.storage.network import groups as network_groups
from tidings.storage.network.groups import Member
from tidings.wire import device
from tidings.wire.groups import MAX_PARTICIPANTS

JPEG = b"\xff\xd8\xff\xe0 a small picture"
PNG = b"\x89PNG\r\n\x1a\n another"


async def test_a_group_is_created_joined_renamed_and_left_and_its_members_are_notified(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    await network.register(ALICE, BOB, CAROL)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)

    group = await done(network, "POST", ALICE, "", {"subject": "Lunch «ü»"})
    assert group == {
        "id": f"{ALICE}-{int(clock.now())}",
        "subject": "Lunch «ü»",
        "creator": ALICE,
        "created_at": int(clock.now()),
        "epoch": 1,
        "has_icon": False,
        "participants": [{"number": ALICE, "admin": True}],
    }
    id_ = group["id"]
    code = await code_of(network, ALICE, id_)
    joined = await done(network, "POST", BOB, "/join", {"code": code})
    assert (participants(joined), joined["epoch"]) == ({ALICE: True, BOB: False}, 2)
    assert await done(network, "POST", BOB, "/join", {"code": code}) == joined
    await done(network, "POST", CAROL, "/join", {"code": code})
    renamed = await done(network, "PUT", ALICE, f"/{id_}", {"subject": "Dinner"})
    assert (renamed["subject"], renamed["epoch"]) == ("Dinner", 3)
    assert await done(network, "PUT", ALICE, f"/{id_}", {"subject": "Dinner"}) == renamed
    assert await done(network, "DELETE", CAROL, f"/{id_}") == {"id": id_, "left": True}
    assert await done(network, "DELETE", CAROL, f"/{id_}") == {"id": id_, "left": True}

    told = await changes(alice, 5)
    assert words(told) == [f"created {ALICE}", f"joined {BOB}", f"joined {CAROL}", "subject", f"left {CAROL}"]
    assert [notice["epoch"] for notice in told] == [1, 2, 3, 3, 4]
    assert [notice["subject"] for notice in told] == ["Lunch «ü»"] * 3 + ["Dinner"] * 2
    assert [notice["by"] for notice in told] == [notice["from"] for notice in told] == [ALICE, BOB, CAROL, ALICE, CAROL]
    assert {notice["group"] for notice in told} == {id_}
    assert words(await changes(bob, 4)) == [f"joined {BOB}", f"joined {CAROL}", "subject", f"left {CAROL}"]
    carol = await network.connect(CAROL)
    assert words(await changes(carol, 3)) == [f"joined {CAROL}", "subject", f"left {CAROL}"]
    for client in (alice, bob, carol):
        await client.nothing_came()

    groups = (await done(network, "GET", BOB))["groups"]
    assert [(each["id"], each["subject"], each["epoch"]) for each in groups] == [(id_, "Dinner", 4)]
    assert await done(network, "GET", CAROL) == {"groups": []}
    assert await refused(network, "GET", CAROL, f"/{id_}") == "403 not_participant"


async def test_two_groups_created_in_one_second_get_different_ids(network: Network) -> None:
    await network.start(clock=ManualClock())
    await network.register(ALICE)
    ids = {await make(network, ALICE) for _ in range(3)}
    for id_ in list(ids):
        await done(network, "DELETE", ALICE, f"/{id_}")
    # The id of a deleted group is not given out again either.
    ids.add(await make(network, ALICE))
    assert len(ids) == 4


async def test_only_admins_change_a_group_and_only_members_see_it(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL, DAVE)
    id_ = await make(network, ALICE, BOB)
    for method, path, body in [
        ("PUT", f"/{id_}", {"subject": "Mine"}),
        ("GET", f"/{id_}/invite", None),
        ("DELETE", f"/{id_}/invite", None),
        ("DELETE", f"/{id_}/participants", {"numbers": [ALICE]}),
        ("PUT", f"/{id_}/admins", {"numbers": [BOB]}),
        ("DELETE", f"/{id_}/admins", {"numbers": [ALICE]}),
        ("DELETE", f"/{id_}/icon", None),
    ]:
        assert await refused(network, method, BOB, path, body) == "403 not_admin", (method, path)
        assert await refused(network, method, CAROL, path, body) == "403 not_participant", (method, path)
        assert await refused(network, method, CAROL, path.replace(id_, "15550000009-1"), body) == "404 no_such_group"
    assert await refused(network, "PUT", BOB, f"/{id_}/icon", data=JPEG) == "403 not_admin"
    assert await refused(network, "GET", CAROL, f"/{id_}/icon") == "403 not_participant"
    assert await refused(network, "GET", CAROL, "/no-group") == "404 no_such_group"
    assert await refused(network, "GET", CAROL, "/1555000ü-1") == "404 no_such_group"
    # No device can act for another number.
    status, response = await network.request("GET", f"/v1/groups/{ALICE}/{id_}", token=network.tokens[BOB])
    assert (status, response["error"]["reason"]) == (401, "unauthorized")


async def test_admins_are_added_and_removed_but_one_remains(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL, DAVE)
    id_ = await make(network, ALICE, BOB, CAROL)
    both = await done(network, "PUT", ALICE, f"/{id_}/admins", {"numbers": [BOB, DAVE]})
    assert participants(both) == {ALICE: True, BOB: True, CAROL: False}
    assert await done(network, "PUT", ALICE, f"/{id_}/admins", {"numbers": [BOB]}) == both
    assert await refused(network, "DELETE", BOB, f"/{id_}/admins", {"numbers": [ALICE, BOB]}) == "400 last_admin"
    only_bob = await done(network, "DELETE", BOB, f"/{id_}/admins", {"numbers": [ALICE, CAROL]})
    assert participants(only_bob) == {ALICE: False, BOB: True, CAROL: False}
    # The epoch covers the participants, and those have not changed.
    assert only_bob["epoch"] == 3

    carol = await network.connect(CAROL)
    told = (await changes(carol, 3))[1:]
    assert words(told) == [f"admins {BOB}", f"admins {ALICE}"]
    assert [notice["admins"] for notice in told] == [[ALICE, BOB], [BOB]]

    # When the last admin leaves, the participant of longest standing becomes admin.
    await done(network, "DELETE", BOB, f"/{id_}")
    told = await changes(carol, 2)
    assert words(told) == [f"left {BOB}", f"admins {ALICE}"]
    assert told[1]["admins"] == [ALICE]
    assert participants(await done(network, "GET", CAROL, f"/{id_}")) == {ALICE: True, CAROL: False}


async def test_a_removed_member_is_notified_once_and_of_nothing_later(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    id_ = await make(network, ALICE, BOB, CAROL)
    bob = await network.connect(BOB)
    await changes(bob, 2)
    assert await refused(network, "DELETE", ALICE, f"/{id_}/participants", {"numbers": [ALICE]}) == "400 invalid"
    removed = await done(network, "DELETE", ALICE, f"/{id_}/participants", {"numbers": [BOB, DAVE]})
    assert (participants(removed), removed["epoch"]) == ({ALICE: True, CAROL: False}, 4)
    assert await done(network, "DELETE", ALICE, f"/{id_}/participants", {"numbers": [BOB]}) == removed
    await done(network, "PUT", ALICE, f"/{id_}", {"subject": "Without Bob"})
    (told,) = await changes(bob, 1)
    assert (told["change"], told["by"], told["numbers"], told["epoch"]) == ("removed", ALICE, [BOB], 4)
    await bob.nothing_came()
    assert await refused(network, "GET", BOB, f"/{id_}") == "403 not_participant"


async def test_a_renewed_invite_code_invalidates_the_old_one(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    id_ = await make(network, ALICE)
    old = await code_of(network, ALICE, id_)
    new = (await done(network, "DELETE", ALICE, f"/{id_}/invite"))["code"]
    assert new != old
    for code in (old, "nonsense", "ü"):
        assert await refused(network, "POST", BOB, "/join", {"code": code}) == "404 no_such_invite"
    assert participants(await done(network, "POST", BOB, "/join", {"code": new})) == {ALICE: True, BOB: False}
    # No number can join a group that all participants have left.
    for number in (ALICE, BOB):
        await done(network, "DELETE", number, f"/{id_}")
    assert await refused(network, "POST", CAROL, "/join", {"code": new}) == "404 no_such_invite"


async def test_an_admin_sets_and_deletes_the_group_icon(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    id_ = await make(network, ALICE, BOB)
    bob = await network.connect(BOB)
    await changes(bob, 1)
    assert await refused(network, "GET", BOB, f"/{id_}/icon") == "404 no_icon"
    for picture, media_type in [(JPEG, "image/jpeg"), (PNG, "image/png")]:
        for _ in range(2):
            assert (await done(network, "PUT", ALICE, f"/{id_}/icon", data=picture))["has_icon"]
        headers = {"Authorization": f"Bearer {network.tokens[BOB]}"}
        async with network.http.get(f"/v1/groups/{BOB}/{id_}/icon", headers=headers) as response:
            assert (response.status, response.content_type, await response.read()) == (200, media_type, picture)
    assert await refused(network, "PUT", ALICE, f"/{id_}/icon", data=b"GIF89a") == "400 invalid"
    assert await refused(network, "PUT", ALICE, f"/{id_}/icon", data=b"") == "400 invalid"
    assert await refused(network, "PUT", ALICE, f"/{id_}/icon", data=JPEG + bytes(65_536)) == "413 too_large"
    assert not (await done(network, "DELETE", ALICE, f"/{id_}/icon"))["has_icon"]
    assert await refused(network, "GET", BOB, f"/{id_}/icon") == "404 no_icon"
    assert words(await changes(bob, 3)) == ["icon"] * 3


async def test_group_and_membership_limits_are_enforced(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB, CAROL)
    for subject in ("", "x" * 101, None, 5):
        assert await refused(network, "POST", ALICE, "", {"subject": subject}) == "400 invalid"
    id_ = await make(network, ALICE, BOB, subject="ü" * 100)
    code = await code_of(network, ALICE, id_)
    database = Database(network.database, "network")
    try:
        async with database.transaction() as connection:
            crowd = [Member(f"1666{i:07d}", admin=False, position=10 + i) for i in range(MAX_PARTICIPANTS - 2)]
            await network_groups.put_members(connection, id_, crowd)
        assert await refused(network, "POST", CAROL, "/join", {"code": code}) == "400 group_full"
        async with database.transaction() as connection:
            await connection.execute(
                network_groups.members.insert(),
                [
                    {"group_id": f"1{i}-1", "number": CAROL, "admin": False, "position": 1}
                    for i in range(rules.MAX_GROUPS)
                ],
            )
            await network_groups.remove_members(connection, id_, [crowd[0].number])
    finally:
        await database.close()
    assert await refused(network, "POST", CAROL, "/join", {"code": code}) == "400 too_many"
    assert await refused(network, "POST", CAROL, "", {"subject": "One more"}) == "400 too_many"


async def test_a_number_that_another_device_registers_meanwhile_stays_in_its_groups(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    group = await make(network, BOB, ALICE)
    unregister, token, clients = Registrations.unregister, network.tokens[ALICE], list[Client]()

    async def register_before(registrations: Registrations, number: str, token: str) -> None:
        await network.register(ALICE)
        clients.append(await network.connect(ALICE))
        await unregister(registrations, number, token)

    monkeypatch.setattr(Registrations, "unregister", register_before)
    await network.request("DELETE", f"/v1/registrations/{ALICE}", token=token)
    assert participants(await done(network, "GET", BOB, f"/{group}")) == {BOB: True, ALICE: False}
    # It stays connected, too.
    (alice,) = clients
    assert words(await changes(alice, 1)) == [f"joined {ALICE}"]
    assert (await alice.request(lambda n: device.Check(n, ALICE, [BOB]))).registered == [BOB]


async def test_an_unregistered_number_leaves_its_groups(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    ids = [await make(network, ALICE, BOB, subject=f"{i}") for i in range(52)]
    status, _ = await network.request("DELETE", f"/v1/registrations/{ALICE}", token=network.tokens[ALICE])
    assert status == 200
    for id_ in (ids[0], ids[-1]):
        assert participants(await done(network, "GET", BOB, f"/{id_}")) == {BOB: True}
    async with network.reading() as connection:
        query = sa.select(sa.func.count()).where(network_groups.members.c.number == ALICE)
        assert (await connection.execute(query)).scalar() == 0
    bob = await network.connect(BOB)
    told = words(await changes(bob, 3 * 52))
    assert (told.count(f"left {ALICE}"), told.count(f"admins {BOB}")) == (52, 52)
    status, _ = await call(network, "POST", ALICE, "", {"subject": "I am gone"})
    assert status == 401


async def test_a_reregistered_number_stays_in_its_groups(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    id_ = await make(network, ALICE, BOB)
    await network.register(BOB)
    assert participants(await done(network, "GET", BOB, f"/{id_}")) == {ALICE: True, BOB: False}
