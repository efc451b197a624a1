"""Database that is unavailable, at another revision, not durable, slow, far off in time, or another
installation's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from cli.coreapp_client import CoreappClient
from cli.doctor import clock
from cli.doctor.business import KeysCheck, NumberCheck
from cli.doctor.coreapps import CoreappLinksCheck, ReachedCoreappsCheck, ShardOwnersCheck
from cli.doctor.database import (
    DatabaseClockCheck,
    DatabaseReachableCheck,
    DurabilityCheck,
    TableRevisionCheck,
    WriteLatencyCheck,
)
from cli.doctor.findings import Level
from harness.mariadb import MariaDB, free_port
from tests.conftest import DatabaseFactory
from tidings.e2ee import master_keys
from tidings.installation.settings import DatabaseSettings
from tidings.net.exposure import ON_THIS_MACHINE
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage import engine, probes
from tidings.storage.business import key_checks, nodes, numbers, shards, webapp_nodes, webapp_unreached
from tidings.storage.business.key_checks import KeyCheck
from tidings.storage.business.nodes import CoreappNode
from tidings.storage.business.webapp_nodes import WebappNode
from tidings.storage.database import Database
from tidings.wire import connection as wire
from tidings.wire import core


async def test_a_sound_database_is_fine_and_unchanged(database_factory: DatabaseFactory) -> None:
    sound = await database_factory("business")
    before = await tables(sound)
    (reachable,) = await DatabaseReachableCheck(sound).run()
    assert reachable.level is Level.FINE
    assert ("SQLite" in reachable.text) == (sound.settings.engine == "sqlite")
    assert [finding.level for finding in await TableRevisionCheck(sound).run()] == [Level.FINE]
    assert [finding.level for finding in await DatabaseClockCheck(sound).run()] == [Level.FINE]
    (written,) = await WriteLatencyCheck(sound, writes=25).run()
    assert "ms a write (25 inserts" in written.text
    assert await tables(sound) == before
    if sound.settings.engine == "sqlite":
        folder = Path(str(sa.make_url(sound.settings.url).database)).parent
        assert not list(folder.glob(".tidings_doctor*"))


async def test_a_user_without_table_privileges_is_fine_and_latency_is_not_measured(mariadb: MariaDB) -> None:
    with mariadb.connect() as administrator, administrator.cursor() as cursor:
        cursor.execute("CREATE DATABASE rows_only")
        cursor.execute("CREATE USER rows_only@'%'")
        cursor.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON rows_only.* TO rows_only@'%'")
    found = Database(DatabaseSettings(mariadb.url("rows_only", user="rows_only")), "business")
    try:
        (finding,) = await WriteLatencyCheck(found, writes=5).run()
        assert (finding.level, "not measured" in finding.text) == (Level.FINE, True)
    finally:
        await found.close()
        with mariadb.connect() as administrator, administrator.cursor() as cursor:
            cursor.execute("DROP USER rows_only@'%'")
            cursor.execute("DROP DATABASE rows_only")


async def tables(found: Database) -> set[str]:
    async with found.engine.connect() as connection:
        return set(await connection.run_sync(lambda c: sa.inspect(c).get_table_names()))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite+aiosqlite:///{0}/business.db", "not a database"),
        ("mysql+aiomysql://root:secret@127.0.0.1:{1}/x", "mysql+aiomysql://127.0.0.1"),
    ],
)
async def test_an_unreachable_database_is_an_error_without_the_password(tmp_path: Path, url: str, words: str) -> None:
    (tmp_path / "business.db").write_text("no database\n" * 500)
    away = Database(DatabaseSettings(url.format(tmp_path, free_port())), "business")
    (finding,) = await DatabaseReachableCheck(away).run()
    await away.close()
    assert (finding.level, finding.check) == (Level.ERROR, "database business")
    assert words in finding.text
    assert "secret" not in finding.text
    assert "WA_DB_" in finding.remedy


async def test_tables_at_another_revision_are_an_error_with_migrate_as_remedy(tmp_path: Path) -> None:
    empty = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/empty.db"), "business")
    (finding,) = await TableRevisionCheck(empty).run()
    await empty.close()
    assert (finding.level, "tidings migrate" in finding.remedy) == (Level.ERROR, True)


async def test_a_server_that_may_lose_commits_is_a_warning_per_reason(mariadb: MariaDB) -> None:
    forgetful = Database(DatabaseSettings(mariadb.url("mysql")), "business")
    # The test server runs with this setting.
    found = await DurabilityCheck(forgetful).run()
    await forgetful.close()
    assert [finding.level for finding in found] == [Level.WARNING]
    assert "innodb_flush_log_at_trx_commit=0" in found[0].text


async def test_disabled_sqlite_durability_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = engine._set_up_sqlite

    def forgetful(connection: object, record: object) -> None:
        plain(connection, record)
        connection.cursor().execute("PRAGMA synchronous=OFF")  # type: ignore[attr-defined]

    monkeypatch.setattr(engine, "_set_up_sqlite", forgetful)
    found = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/x.db"), "business")
    (finding,) = await DurabilityCheck(found).run()
    await found.close()
    assert (finding.level, "synchronous=0" in finding.text) == (Level.WARNING, True)


@pytest.mark.parametrize(
    ("milliseconds", "level"), [(0.4, Level.FINE), (5.0, Level.FINE), (5.6, Level.WARNING), (15.6, Level.ERROR)]
)
def test_write_latency_is_rated_by_the_thresholds_of_the_on_premises_api(milliseconds: float, level: Level) -> None:
    measured = probes.Writes(clients=5, count=5000, seconds=milliseconds)
    assert measured.milliseconds == pytest.approx(milliseconds)
    check = WriteLatencyCheck(Database(DatabaseSettings("sqlite+aiosqlite:///x"), "business"))
    finding = check.evaluate(measured)
    assert finding.level is level
    assert f"{milliseconds:.1f} ms a write" in finding.text


async def test_a_commit_delay_shows_in_the_measured_write_latency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = engine._begin_sqlite

    def begin(connection: sa.Connection) -> None:
        time.sleep(0.006)
        slow(connection)

    monkeypatch.setattr(engine, "_begin_sqlite", begin)
    found = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/x.db"), "business")
    (finding,) = await WriteLatencyCheck(found, writes=10).run()
    await found.close()
    assert finding.level >= Level.WARNING


@pytest.mark.parametrize(
    ("theirs", "exact", "level"),
    [
        (1000.0, True, Level.FINE),
        (1003.0, True, Level.WARNING),
        (960.0, True, Level.ERROR),
        (998.0, False, Level.FINE),
        (996.5, False, Level.WARNING),
        (1001.9, False, Level.FINE),
    ],
)
def test_clock_differences_are_rated(theirs: float, exact: bool, level: Level) -> None:
    assert clock.compare("clock", theirs, 1000.0, exact=exact).level is level


async def test_a_wrong_database_clock_is_found(mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Database(DatabaseSettings(mariadb.url("mysql")), "business")
    assert [finding.level for finding in await DatabaseClockCheck(server).run()] == [Level.FINE]
    ours = time.time()
    monkeypatch.setattr(time, "time", lambda: ours - 600)
    (finding,) = await DatabaseClockCheck(server).run()
    await server.close()
    assert finding.level is Level.ERROR
    assert "+600" in finding.text or "+599" in finding.text


async def test_the_number_or_keys_of_another_installation_are_errors(database_factory: DatabaseFactory) -> None:
    found = await database_factory("business")
    ours, theirs = SecretKeys.of(b"o" * 32), SecretKeys.of(b"t" * 32)
    fresh = await KeysCheck(found, {key_checks.MASTER: ours, key_checks.SETTINGS: ours}).run()
    assert [finding.level for finding in fresh] == [Level.FINE, Level.FINE]
    async with found.transaction() as connection:
        check = KeyCheck(key_checks.MASTER, master_keys.key_id(b"t" * 32), "", 1)
        await key_checks.add(connection, check)
    (wrong,) = await KeysCheck(found, {key_checks.MASTER: ours}).run()
    assert (wrong.level, check.key_id in wrong.text) == (Level.ERROR, True)
    (right,) = await KeysCheck(found, {key_checks.MASTER: theirs}).run()
    assert right.level is Level.FINE
    (unregistered,) = await NumberCheck(found, "15550000000").run()
    assert (unregistered.level, "not registered" in unregistered.text) == (Level.FINE, True)


async def test_a_shard_without_an_owner_or_heartbeat_is_an_error(database_factory: DatabaseFactory) -> None:
    found = await database_factory("business")
    owners = ShardOwnersCheck(found, lease_seconds=30)
    assert [finding.level for finding in await owners.run()] == [Level.ERROR]
    async with found.transaction() as connection:
        await shards.create_shards(connection, 2)
        await shards.claim(connection, 1, owner="ann", address="127.0.0.1:1", heartbeat_timeout=30)
    free, owned = await owners.run()
    assert (free.level, free.text) == (Level.ERROR, "shard 0 (one of 2) has no owner")
    assert (owned.level, "shard 1 (one of 2): ann at 127.0.0.1:1, 0." in owned.text) == (Level.FINE, True)
    async with found.transaction() as connection:
        at = shards.table.c.heartbeat_at
        await connection.execute(shards.table.update().values(heartbeat_at=at - 40_000))
    _, silent = await owners.run()
    assert (silent.level, "ann has sent no heartbeat for 4" in silent.text) == (Level.ERROR, True)
    (dead,) = await CoreappLinksCheck(found, CoreappClient("key", ON_THIS_MACHINE)).run()
    assert (dead.level, "127.0.0.1:1" in dead.text) == (Level.ERROR, True)


async def test_coreapps_unreachable_from_webapps_are_reported(database_factory: DatabaseFactory) -> None:
    found = await database_factory("business")
    check = ReachedCoreappsCheck(found)
    assert [finding.level for finding in await check.run()] == [Level.FINE]

    async def report(webapp: str, **seconds: float) -> None:
        async with found.transaction() as connection:
            await webapp_nodes.renew(connection, WebappNode(webapp, webapp), delete_after=3600)
            unreached = {f"{coreapp}:6252": value for coreapp, value in seconds.items()}
            await webapp_unreached.record(connection, webapp, unreached)

    async with found.transaction() as connection:
        for name in ("ann", "bob"):
            await nodes.join(connection, CoreappNode(name, "1", f"{name}:6252", 600.0))
    await report("w1", ann=90, bob=90, gone=90)
    await report("w2")
    some = await check.run()
    assert [(finding.level, finding.text[:46]) for finding in some] == [
        (Level.WARNING, "1 of 2 Webapps does not reach ann at ann:6252:"),
        (Level.WARNING, "1 of 2 Webapps does not reach bob at bob:6252:"),
    ]
    await report("w2", ann=40)
    first, _ = await check.run()
    assert (first.level, first.text[:39]) == (Level.ERROR, "no Webapp reaches ann at ann:6252: w1 f")
    assert "w1 for 9" in first.text
    assert "w2 for 4" in first.text
    assert "TIDINGS_COREAPP_ADVERTISED_HOST" in first.remedy


class FakeCoreapp:
    """Other end of the link."""

    def __init__(self, key: str, status: str) -> None:
        """Create the Coreapp.

        status: status of the gateway, or `elsewhere` for a shard that is owned elsewhere.
        """
        self._key = key
        self._status = status

    def opened(self, connection: wire.Connection) -> None:
        """Ignore the event."""

    def received(self, connection: wire.Connection, frame: Any) -> None:
        if isinstance(frame, core.GetHealth):
            is_elsewhere = self._status == "elsewhere"
            status = "unregistered" if is_elsewhere else self._status
            connection.send(core.Health(frame.n, status, "ann", elsewhere=is_elsewhere))
        elif frame.key == self._key:
            connection.send(core.Done(frame.n))
        else:
            connection.close("wrong link key")

    def closed(self, connection: wire.Connection, reason: str) -> None:
        """Ignore the event."""


@pytest.mark.parametrize(
    ("key", "status", "level", "words"),
    [
        ("ours", "connected", Level.FINE, "ann is connected"),
        ("ours", "connecting", Level.ERROR, "ann is connecting"),
        ("ours", "elsewhere", Level.ERROR, "ann: the number is registered elsewhere"),
        ("another", "connected", Level.ERROR, "does not respond"),
    ],
)
async def test_the_coreapp_check_requests_its_status_and_finds_a_wrong_link_key(
    database_factory: DatabaseFactory, key: str, status: str, level: Level, words: str
) -> None:
    found = await database_factory("business")
    server = await wire.listen("127.0.0.1", 0, core.Request, lambda: FakeCoreapp(key, status))
    port = server.sockets[0].getsockname()[1]
    async with found.transaction() as connection:
        await shards.create_shards(connection, 1)
        await shards.claim(connection, 0, owner="ann", address=f"127.0.0.1:{port}", heartbeat_timeout=30)
    (finding,) = await CoreappLinksCheck(found, CoreappClient("ours", ON_THIS_MACHINE)).run()
    server.close()
    assert (finding.level, words in finding.text) == (level, True), finding


async def test_paused_and_half_removed_numbers_and_hosts_without_a_number_are_reported(
    database_factory: DatabaseFactory,
) -> None:
    found = await database_factory("business")
    async with found.transaction() as connection:
        await numbers.add_first(connection, "15550000000")
        for number in ("15550000001", "15550000002"):
            await numbers.add(connection, number)
        await numbers.set_state(connection, "15550000000", numbers.PAUSED)
        await numbers.set_state(connection, "15550000002", numbers.REMOVING)
    hosts = {"wa1.example": "15550000001", "wa2.example": "15550000002"}
    findings = await NumberCheck(found, "15550000000", hosts).run()
    assert [finding.level for finding in findings[:3]] == [Level.FINE] * 3
    assert [(finding.level, finding.text) for finding in findings[3:]] == [
        (Level.WARNING, "15550000000 is paused: its API requests get 503/1011"),
        (Level.WARNING, "the removal of 15550000002 is incomplete"),
        (
            Level.ERROR,
            "TIDINGS_NUMBER_HOSTS: wa2.example stands for 15550000002, which this installation does not have",
        ),
    ]
