"""The business's number: registration by a code, backup and restoration of its keys."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from coreapp import services
from coreapp.account import key_backup
from coreapp.account.key_backup import Keys, WrongBackup
from coreapp.errors import RequestRefused
from harness.proxy import Proxy
from tests.conftest import DatabaseFactory
from tests.coreapp.conftest import BUSINESS, Running, World, make_settings
from tests.coreapp.signals import TIMEOUT, soon
from tidings.config.env import SettingsError
from tidings.secrets import password_box
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage.business import accounts, registrations, sessions
from tidings.wire import codes, core

NUMBER = "15550110001"
PASSWORD = "under seal"


async def until_unregistered(running: Running) -> None:
    await soon(lambda: running.node.requests.waits_for_code)
    assert (await running.client.call(core.GetHealth)).gateway_status == "unregistered"


async def export(running: Running, password: str = PASSWORD) -> str:
    response = await running.client.call(lambda n: core.ExportKeys(n, BUSINESS, password))
    assert isinstance(response, core.Exported), response
    return response.data


async def restore(running: Running, data: str, password: str = PASSWORD) -> Any:
    return await running.client.call(lambda n: core.RestoreKeys(n, BUSINESS, password, data))


async def count(world: World, table: sa.Table) -> int:
    async with world.database.reading() as connection:
        return int((await connection.execute(sa.select(sa.func.count()).select_from(table))).scalar_one())


async def test_a_number_is_unregistered_until_its_code_is_verified(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start(owned=False, auto_register=False)
    await until_unregistered(running)
    assert not world.network.registrations
    for response in (
        await running.client.send(NUMBER),
        await running.client.call(lambda n: core.SettingsChanged(n, BUSINESS)),
    ):
        assert (response.code, response.retry_after) == (1011, 5)
    assert isinstance(await running.client.call(lambda n: core.RequestCode(n, BUSINESS)), core.Done)
    assert world.network.codes == [BUSINESS]
    assert isinstance(await running.client.call(lambda n: core.VerifyCode(n, BUSINESS, "123456")), core.Done)
    assert [body["code"] for body in world.network.registrations] == ["123456"]
    await world.owner(running)
    await world.connected(running)
    assert (await running.client.call(core.GetHealth)).gateway_status == "connected"
    await running.client.check(NUMBER)
    assert isinstance(await running.client.send(NUMBER), core.Accepted)
    async with world.database.reading() as connection:
        kept = await registrations.find_registration(connection, BUSINESS)
    assert kept.registered_at > 1_700_000_000_000


async def test_the_pin_of_a_code_request_is_sent_with_the_registration(world: World) -> None:
    running = await world.start(owned=False, auto_register=False)
    await until_unregistered(running)
    assert isinstance(await running.client.call(lambda n: core.RequestCode(n, BUSINESS, pin="246813")), core.Done)
    assert isinstance(await running.client.call(lambda n: core.VerifyCode(n, BUSINESS, "123456")), core.Done)
    assert [(body["code"], body["pin"]) for body in world.network.registrations] == [("123456", "246813")]


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [(401, 1009, "code: is wrong"), (429, 1015, "too many"), (400, 1005, "refused"), (500, 1014, "cannot be reached")],
)
async def test_the_network_s_response_to_a_code_reaches_the_client(
    world: World, status: int, code: int, words: str
) -> None:
    running = await world.start(owned=False, auto_register=False)
    await until_unregistered(running)
    world.network.statuses["registrations"] = status
    response = await running.client.call(lambda n: core.VerifyCode(n, BUSINESS, "000000"))
    assert (response.code, words in response.details) == (code, True)
    world.network.statuses["codes"] = 429
    response = await running.client.call(lambda n: core.RequestCode(n, BUSINESS))
    assert (response.code, response.retry_after) == (1015, 30)
    assert (await running.client.call(core.GetHealth)).gateway_status == "unregistered"


async def test_a_coreapp_without_a_registered_number_is_ready_at_once(world: World) -> None:
    ready: asyncio.Queue[Any] = asyncio.Queue()
    stop = asyncio.Event()
    # Longer than the duration of the test.
    settings = world.settings.model_copy(
        update={"auto_register": False, "lease_seconds": 3600.0, "heartbeat_seconds": 60.0}
    )
    running = asyncio.create_task(services.run(settings, stop, ready.put_nowait))
    async with asyncio.timeout(TIMEOUT):
        assert (await ready.get()).link
    stop.set()
    await running


async def test_requests_for_another_number_are_refused(world: World) -> None:
    running = await world.start()
    for request in (
        lambda n: core.RequestCode(n, NUMBER),
        lambda n: core.VerifyCode(n, NUMBER, "123456"),
        lambda n: core.ExportKeys(n, NUMBER, PASSWORD),
        lambda n: core.RestoreKeys(n, NUMBER, PASSWORD, "x"),
    ):
        response = await running.client.call(request)
        assert response.code == 1018


async def test_the_database_of_another_number_raises_settingserror(world: World) -> None:
    running = await world.start()
    await running.stopped()
    with pytest.raises(SettingsError, match=f"is 15559999999, but this database is that of {BUSINESS}:"):
        await services.run(world.settings.model_copy(update={"account": "15559999999"}), asyncio.Event())


async def test_an_unregistered_number_has_no_keys_to_export(world: World) -> None:
    running = await world.start(owned=False, auto_register=False)
    await until_unregistered(running)
    response = await running.client.call(lambda n: core.ExportKeys(n, BUSINESS, PASSWORD))
    assert response.code == 1011


async def test_a_restore_registers_the_keys_drops_sessions_and_messages_continue(world: World) -> None:
    running, phone, _ = await world.start_with_session(NUMBER)
    before = world.network.registrations[-1]
    data = await export(running)
    term = running.shard
    assert await count(world, sessions.table) == 1
    assert isinstance(await restore(running, data), core.Done)
    assert await count(world, sessions.table) == 0
    await world.owner(running)
    assert running.shard is not term
    await world.connected(running)
    after = world.network.registrations[-1]
    assert len(world.network.registrations) == 2
    for same in ("registration_id", "identity_key", "signed_prekey", "kyber_prekey"):
        assert after[same] == before[same]
    ids = {key["key_id"] for key in after["prekeys"]}
    assert len(ids) == 100
    assert not ids & {key["key_id"] for key in before["prekeys"]}
    assert isinstance(await running.client.send(NUMBER, "again"), core.Accepted)
    await world.network.signals.until(lambda: len(world.network.sends) == 2)
    sent = world.network.sends[1]
    assert sent.kind == "prekey"
    assert phone.read(sent.kind, sent.body) == {"type": "text", "text": {"body": "again"}}


async def test_exported_keys_can_be_restored_in_another_installation(
    world: World, database_factory: DatabaseFactory, tmp_path: Any
) -> None:
    running = await world.start()
    data = await export(running)
    first = world.network.registrations[-1]
    await running.stopped()
    database = await database_factory("business")
    settings = make_settings(tmp_path, database, world.network)
    secrets = dataclasses.replace(settings.secrets, master_key=SecretKeys.of(b"n" * 32))
    other = World(database, world.network, world.sink, settings.model_copy(update={"secrets": secrets}))
    try:
        fresh = await other.start()
        assert world.network.registrations[-1]["identity_key"] != first["identity_key"]
        assert isinstance(await restore(fresh, data), core.Done)
        assert world.network.registrations[-1]["identity_key"] == first["identity_key"]
        await other.owner(fresh)
        assert fresh.shard.context.device.prekeys.keys() >= {key["key_id"] for key in first["prekeys"]}
    finally:
        await other.close()


async def test_messages_accepted_before_a_restore_are_sent_after_it(world: World) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    await running.client.check(NUMBER)
    data = await export(running)
    world.network.policy = lambda send: "hold"
    accepted = await running.client.send(NUMBER)
    await world.network.signals.until(lambda: len(world.network.sends) == 1)
    assert isinstance(await restore(running, data), core.Done)
    world.network.policy = lambda send: None
    await world.network.signals.until(lambda: world.network.ids_sent().count(accepted.id) >= 2)


async def test_a_wrong_password_changes_nothing(world: World) -> None:
    running = await world.start()
    data = await export(running)
    term = running.shard
    for password, content in (
        ("wrong", data),
        (PASSWORD, data[:-8] + "AAAAAAAA"),
        (PASSWORD, "AAAA"),
        (PASSWORD, "{}"),
    ):
        response = await restore(running, content, password)
        assert response.code == 1009
        assert response.details.startswith("data: ")
    assert running.shard is term
    assert len(world.network.registrations) == 1


async def test_a_restore_without_the_network_keeps_the_old_keys(world: World) -> None:
    way = Proxy.to(world.network.http)
    await way.start()
    running = await world.start(network_http=way.url)
    data = await export(running)
    await way.stop()
    rows = await count(world, accounts.own_prekeys)
    response = await restore(running, data)
    assert response.code == 1014
    assert await count(world, accounts.own_prekeys) == rows
    assert not await count(world, registrations.pending)
    await world.owner(running)


async def test_a_restore_completes_when_the_network_responds_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coreapp.account.requests.RESTORE_SECONDS", 0.5)
    running = await world.start()
    data = await export(running)
    # The outcome at the network is unknown.
    world.network.statuses["registrations"] = 500
    response = await restore(running, data)
    assert (response.code, "takes effect when" in response.details) == (1014, True)
    made = len(world.network.registrations)
    assert await count(world, registrations.pending) == 1
    del world.network.statuses["registrations"]
    await world.owner(running)
    assert len(world.network.registrations) == made + 1
    assert not await count(world, registrations.pending)


async def test_a_standby_refuses_a_restore(world: World) -> None:
    first = await world.start()
    data = await export(first)
    second = await world.start(owned=False, node="second")
    response = await restore(second, data)
    assert response.code == 1018
    await first.stopped()
    await world.owner(second)
    assert isinstance(await restore(second, data), core.Done)


async def test_a_restore_during_shutdown_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    running = await world.start()
    data = await export(running)
    looking = asyncio.Event()

    async def look() -> float:
        looking.set()
        await running.stop.wait()
        return 1.0

    # A poll in progress would start the next term, so start one.
    monkeypatch.setattr(running.node, "run_once", look)
    running.node._wakeup.wake()
    await looking.wait()
    desk = running.node.requests
    call = asyncio.create_task(desk.restore_keys(BUSINESS, PASSWORD, data))
    await desk.reopen.wait()
    running.stop.set()
    await running.task
    with pytest.raises(RequestRefused):
        await call


def test_a_backup_cannot_be_opened_without_its_password() -> None:
    keys = Keys(1, BUSINESS, 7, bytes(32), [])
    text = key_backup.seal(keys, PASSWORD)
    assert text.isascii()
    assert text != key_backup.seal(keys, PASSWORD)
    with pytest.raises(WrongBackup, match="later version"):
        key_backup.open_keys(text, PASSWORD)
    with pytest.raises(WrongBackup, match="password is wrong"):
        key_backup.open_keys(text, PASSWORD + " ")


def test_a_password_box_opens_only_with_its_password_and_purpose() -> None:
    box = password_box.seal(PASSWORD, b"content", purpose="tests")
    assert password_box.open_box(PASSWORD, box, purpose="tests") == b"content"
    with pytest.raises(password_box.CannotOpen):
        password_box.open_box(PASSWORD, box, purpose="another")
    for text in ("", "AAAA", "not base64", box[:40], "VEJYAQ" + "A" * 80, "VEJYAf8" + "A" * 81):
        with pytest.raises(ValueError, match=r"base64|later version|password"):
            password_box.open_box(PASSWORD, text, purpose="tests")


@pytest.mark.parametrize("wrong", ["identity", "key id"])
async def test_a_backup_with_malformed_keys_is_refused_and_the_coreapp_continues(world: World, wrong: str) -> None:
    world.add_phones(NUMBER)
    running = await world.start()
    await world.connected(running)
    keys = key_backup.open_keys(await export(running), PASSWORD)
    if wrong == "identity":
        keys = msgspec.structs.replace(keys, identity=b"short")
    else:
        # The network gets only the newest keys.
        keys.prekeys.insert(0, msgspec.structs.replace(keys.prekeys[0], key_id=2**70))
    response = await restore(running, key_backup.seal(keys, PASSWORD))
    assert isinstance(response, core.Refused), response
    assert response.code == codes.PARAMETER_INVALID
    assert not running.task.done()
    assert (await running.client.send(NUMBER)).id
