"""Users without a visible number: programs of v1 see a number that stands for them, and can write to it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from coreapp.upstream.standin_numbers import StandInNumbers
from harness import polling
from tests.coreapp.conftest import BUSINESS, World
from tests.coreapp.upstream.conftest import hidden_message, ids_refused, message, post, status, until_no_jobs
from tests.coreapp.upstream.scripted_cloud import ScriptedCloud
from tidings.storage.business import standins
from tidings.storage.business.standins import StandIn
from tidings.wire import codes, core

ANN, BEN = "US.13491208655302741918", "US.13491208655302741919"
OF_ANN, OF_BEN = "999844650983059", "999000000000002"


async def issued(world: World) -> list[StandIn]:
    """Return the numbers on disk."""
    numbers = [OF_ANN, OF_BEN, f"888{OF_ANN[3:]}"]
    return list(await world.database.query(lambda c: standins.list_by_number(c, BUSINESS, numbers)))


async def test_a_message_is_shown_with_the_number_that_stands_for_its_sender(upstream_world: World) -> None:
    running = await upstream_world.start()
    arrivals = [hidden_message(f"wamid.{n}", stand_in=OF_ANN, user_id=ANN) for n in range(5)]
    responses = await asyncio.gather(*(post(running, each) for each in arrivals))
    assert all(isinstance(response, core.Done) for response in responses)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 5)
    for posted in upstream_world.sink.taken():
        assert posted.body["contacts"] == [{"profile": {"name": "Ann"}, "wa_id": OF_ANN}]
        assert posted.body["messages"][0]["from"] == OF_ANN
        assert ANN not in str(posted.body)
    assert await issued(upstream_world) == [StandIn(BUSINESS, OF_ANN, ANN)]


async def test_a_message_to_the_number_is_posted_to_the_user(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await upstream_world.start()
    await post(running, hidden_message("wamid.IN=", stand_in=OF_ANN, user_id=ANN))
    (found,) = await running.client.check(f"+{OF_ANN}")
    assert (found.status, found.wa_id) == ("valid", OF_ANN)
    sent = await running.client.send(OF_ANN)
    assert isinstance(sent, core.Accepted)
    await until_no_jobs(upstream_world)
    (body,) = cloud.posts
    assert body["recipient"] == ANN
    assert "to" not in body
    reached = status(sent.id, "delivered", wamid="wamid.1=", recipient_id=None, recipient_user_id=ANN)
    await post(running, core.UpstreamEvent(reached.kind, reached.body, OF_ANN))
    await upstream_world.sink.signals.until(lambda: upstream_world.sink.statuses_of(sent.id) == ["sent", "delivered"])
    shown = [s for posted in upstream_world.sink.taken() for s in posted.body.get("statuses", ())]
    assert {one["recipient_id"] for one in shown} == {OF_ANN}
    # The next owner reads it from the table, also where the prefix is another one now.
    await running.stopped()
    again = await upstream_world.start(node="second", cloud_standin=888)
    await again.client.send(OF_ANN)
    await until_no_jobs(upstream_world)
    assert [each["recipient"] for each in cloud.posts] == [ANN, ANN]


async def test_a_number_that_was_never_issued_is_an_invalid_recipient(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await upstream_world.start(unregistered_seconds=0.0)
    for number in (OF_ANN, "9991", "999999999999999"):
        refused = await running.client.send(number)
        assert isinstance(refused, core.Refused)
        assert refused.code == codes.INVALID_USER
        (found,) = await running.client.check(number if len(number) > 4 else "+9991234")
        assert found.status == "invalid"
    await post(running, hidden_message("wamid.IN=", stand_in=OF_ANN, user_id=ANN))
    assert isinstance(await running.client.send(OF_ANN), core.Accepted)
    await until_no_jobs(upstream_world)
    assert [body.get("recipient") for body in cloud.posts] == [ANN]


async def test_a_number_of_the_range_that_was_valid_before_fails(upstream_world: World, cloud: ScriptedCloud) -> None:
    running = await upstream_world.start()
    running.shard.peers.contacts.record_registered([OF_BEN])
    sent = await running.client.send(OF_BEN)
    await upstream_world.sink.signals.until(lambda: upstream_world.sink.statuses_of(sent.id) == ["failed"])
    assert upstream_world.sink.taken()[0].body["statuses"][0]["errors"][0]["code"] == 1013
    assert cloud.posts == []


@pytest.mark.parametrize(("number", "user_id"), [(OF_ANN, BEN), (OF_BEN, ANN)])
async def test_a_number_of_another_user_or_a_second_one_of_a_user_is_refused_so_that_the_post_is_repeated(
    upstream_world: World, number: str, user_id: str
) -> None:
    running = await upstream_world.start()
    await post(running, hidden_message("wamid.A", stand_in=OF_ANN, user_id=ANN))
    response = await post(running, hidden_message("wamid.B", stand_in=number, user_id=user_id), message("wamid.C"))
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_READY
    # Nothing of the post is kept, and the shard works on.
    free = OF_BEN if user_id == BEN else OF_ANN
    again = await post(running, hidden_message("wamid.B", stand_in=free, user_id=user_id), message("wamid.C"))
    assert isinstance(again, core.Done)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 3)
    assert len(await issued(upstream_world)) == (2 if user_id == BEN else 1)


async def test_two_shards_give_one_user_one_number(upstream_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other shard commits between the look-up and the commit."""
    running = await upstream_world.start()
    prepare = StandInNumbers.prepare

    async def overtaken(numbers: StandInNumbers, users: Any, moved: Any) -> Any:
        found = await prepare(numbers, users, moved)
        other = [StandIn(BUSINESS, f"888{OF_ANN[3:]}", ANN)]
        await upstream_world.database.commit(lambda connection: standins.add(connection, BUSINESS, other))
        return found

    with monkeypatch.context() as overtaking:
        overtaking.setattr(StandInNumbers, "prepare", overtaken)
        response = await post(running, hidden_message("wamid.A", stand_in=OF_ANN, user_id=ANN))
    assert isinstance(response, core.Refused)
    other = f"888{OF_ANN[3:]}"
    assert await issued(upstream_world) == [StandIn(BUSINESS, other, ANN)]
    assert upstream_world.sink.taken() == []

    # The Webapp finds the other number when the post is repeated.
    async def is_taken() -> bool:
        return isinstance(await post(running, hidden_message("wamid.A", stand_in=other, user_id=ANN)), core.Done)

    await polling.until(is_taken, seconds=10.0, pause=0.05)
    await upstream_world.sink.signals.until(lambda: len(upstream_world.sink.taken()) == 1)
    assert upstream_world.sink.taken()[0].body["messages"][0]["from"] == other


async def test_the_number_is_on_disk_with_the_message_or_not_at_all(
    upstream_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = await upstream_world.start()
    with ids_refused(monkeypatch):
        response = await post(running, hidden_message("wamid.A", stand_in=OF_ANN, user_id=ANN))
    assert isinstance(response, core.Refused)
    assert await issued(upstream_world) == []


async def test_a_message_without_a_form_in_v1_issues_no_number(upstream_world: World) -> None:
    running = await upstream_world.start()
    revoked = hidden_message("wamid.A", stand_in=OF_ANN, user_id=ANN, type="revoke", revoke={})
    assert isinstance(await post(running, revoked), core.Done)
    assert await issued(upstream_world) == []


NEW = "US.13491208655302741999"


def notice(
    wamid: str, *, stand_in: str = OF_ANN, kind: str = "user_changed_user_id", sender: str = ANN, **more: Any
) -> core.UpstreamEvent:
    """Return the notice that Ann has got another id, as a Webapp passes it on."""
    system = {"body": f"User Ann changed from {ANN} to {NEW}", "type": kind, "user_id": NEW, **more}
    event = hidden_message(wamid, stand_in=stand_in, user_id=ANN, type="system", system=system)
    return msgspec.structs.replace(event, body=event.body.replace(ANN.encode(), sender.encode(), 1))


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"kind": "user_changed_number"},
        # The number of a user who is hidden again in 30 days is not reported.
        {"kind": "user_changed_number", "wa_id": "15550110009"},
        # The sender is the user with the new id.
        {"sender": NEW},
    ],
)
async def test_the_number_follows_a_user_to_another_id(
    upstream_world: World, cloud: ScriptedCloud, caplog: pytest.LogCaptureFixture, given: dict[str, Any]
) -> None:
    caplog.set_level(logging.INFO)
    running = await upstream_world.start()
    await post(running, hidden_message("wamid.A", stand_in=OF_ANN, user_id=ANN))
    for _ in range(2):
        # A repeated notice changes nothing.
        assert isinstance(await post(running, notice("wamid.N", **given)), core.Done)
    assert await issued(upstream_world) == [StandIn(BUSINESS, OF_ANN, NEW)]
    (logged,) = (record for record in caplog.records if record.message == "upstream.standin_moved")
    assert vars(logged)["standin"] == OF_ANN
    assert not {ANN, NEW} & set(map(str, vars(logged).values()))
    await running.client.send(OF_ANN)
    await until_no_jobs(upstream_world)
    assert [body["recipient"] for body in cloud.posts] == [NEW]
    assert isinstance(await post(running, hidden_message("wamid.B", stand_in=OF_ANN, user_id=NEW)), core.Done)
    # The next owner reads it from the table.
    await running.stopped()
    again = await upstream_world.start(node="second")
    await again.client.send(OF_ANN)
    await until_no_jobs(upstream_world)
    assert [body["recipient"] for body in cloud.posts] == [NEW, NEW]
    await upstream_world.sink.signals.until(lambda: len(messages_in(upstream_world)) == 2)
    assert {one["from"] for one in messages_in(upstream_world)} == {OF_ANN}


def messages_in(world: World) -> list[Any]:
    """Return the messages that webhooks have got."""
    return [one for posted in world.sink.taken() for one in posted.body.get("messages", ())]


async def test_a_notice_between_messages_of_both_ids_in_one_post_moves_the_number(
    upstream_world: World, cloud: ScriptedCloud
) -> None:
    running = await upstream_world.start()
    events = [
        hidden_message("wamid.A", stand_in=OF_ANN, user_id=ANN),
        notice("wamid.N"),
        hidden_message("wamid.B", stand_in=OF_ANN, user_id=NEW),
    ]
    for _ in range(2):
        assert isinstance(await post(running, *events), core.Done)
    assert await issued(upstream_world) == [StandIn(BUSINESS, OF_ANN, NEW)]
    await upstream_world.sink.signals.until(lambda: len(messages_in(upstream_world)) == 2)


async def test_a_user_whose_new_id_has_a_number_already_has_changed_to_that_number(upstream_world: World) -> None:
    """A message of the new id has overtaken the notice."""
    await upstream_world.configure(notify_user_change_number=True)
    running = await upstream_world.start()
    await post(running, hidden_message("wamid.A", stand_in=OF_ANN, user_id=ANN))
    await post(running, hidden_message("wamid.B", stand_in=OF_BEN, user_id=NEW))
    for _ in range(2):
        assert isinstance(await post(running, notice("wamid.N")), core.Done)
    assert set(await issued(upstream_world)) == {StandIn(BUSINESS, OF_BEN, NEW), StandIn(BUSINESS, OF_ANN, ANN)}
    await upstream_world.sink.signals.until(lambda: len(messages_in(upstream_world)) == 3)
    shown = next(one for one in messages_in(upstream_world) if one["type"] == "system")
    assert shown["from"] == OF_ANN
    assert shown["system"] == {
        "body": f"User Ann changed from {OF_ANN} to {OF_BEN}",
        "new_wa_id": OF_BEN,
        "wa_id": OF_BEN,
        "type": "user_changed_number",
    }


async def test_a_notice_about_a_user_without_a_number_issues_none(upstream_world: World) -> None:
    running = await upstream_world.start()
    unknown = msgspec.structs.replace(notice("wamid.N"), peer="", user_id="")
    assert isinstance(await post(running, unknown, notice("wamid.O")), core.Done)
    assert await issued(upstream_world) == []
    assert upstream_world.sink.taken() == []


async def test_a_read_that_began_before_a_move_does_not_undo_it(
    upstream_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = StandInNumbers(upstream_world.database, BUSINESS, "999")
    rows = [StandIn(BUSINESS, OF_ANN, ANN)]
    await upstream_world.database.commit(lambda connection: standins.add(connection, BUSINESS, rows))
    list_by_number = standins.list_by_number

    async def overtaken(connection: Any, account: str, named: Any) -> Any:
        found = await list_by_number(connection, account, named)
        numbers.issue(OF_ANN, ANN)
        assert numbers.move(OF_ANN, NEW) == (StandIn(BUSINESS, OF_ANN, NEW),)
        return found

    monkeypatch.setattr(standins, "list_by_number", overtaken)
    assert await numbers.find([OF_ANN]) == {OF_ANN: NEW}
    assert await numbers.find([OF_ANN]) == {OF_ANN: NEW}


async def test_a_notice_that_a_first_message_of_the_new_id_overtakes_is_repeated(
    upstream_world: World, cloud: ScriptedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another shard issues a number to the new id between the look-up and the commit."""
    await upstream_world.configure(notify_user_change_number=True)
    running = await upstream_world.start()
    await post(running, hidden_message("wamid.A", stand_in=OF_ANN, user_id=ANN))
    shard, prepare = running.shard, StandInNumbers.prepare

    async def overtaken(numbers: StandInNumbers, users: Any, moved: Any) -> Any:
        found = await prepare(numbers, users, moved)
        other = [StandIn(BUSINESS, OF_BEN, NEW)]
        await upstream_world.database.commit(lambda connection: standins.add(connection, BUSINESS, other))
        return found

    with monkeypatch.context() as overtaking:
        overtaking.setattr(StandInNumbers, "prepare", overtaken)
        response = await post(running, notice("wamid.N"))
    assert isinstance(response, core.Refused)
    assert response.code == codes.NOT_READY
    assert set(await issued(upstream_world)) == {StandIn(BUSINESS, OF_BEN, NEW), StandIn(BUSINESS, OF_ANN, ANN)}
    # The shard works on, with the number for the same user.
    assert running.shard is shard
    await running.client.send(OF_ANN)
    await until_no_jobs(upstream_world)
    assert [body["recipient"] for body in cloud.posts] == [ANN]
    assert isinstance(await post(running, notice("wamid.N")), core.Done)
    await upstream_world.sink.signals.until(lambda: len(messages_in(upstream_world)) == 2)
    assert next(one for one in messages_in(upstream_world) if one["type"] == "system")["system"]["new_wa_id"] == OF_BEN
