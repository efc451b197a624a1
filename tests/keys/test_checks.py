"""A process whose keys or directory differ from those of the other processes does not start."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tidings.config.env import SettingsError
from tidings.installation import data_directory
from tidings.keys import checks
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage.business import key_checks, nodes, webapp_nodes
from tidings.storage.business.key_checks import KeyCheck
from tidings.storage.business.nodes import CoreappNode
from tidings.storage.business.webapp_nodes import WebappNode
from tidings.storage.database import Connection, Database

WEBAPP = WebappNode("a" * 32, "web1:9090")


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


async def test_a_link_key_other_than_that_of_running_processes_is_refused(database: Database) -> None:
    await checks.require_link(database, "the link key")
    async with database.transaction() as connection:
        await webapp_nodes.renew(connection, WEBAPP, delete_after=60)
        await nodes.join(connection, CoreappNode("core1", "b" * 16, "127.0.0.1:6252", 5.0))
    await checks.require_link(database, "the link key")
    with pytest.raises(SettingsError, match="TIDINGS_LINK_KEY differs from that of web1:9090, core1"):
        await checks.require_link(database, "another key")


async def test_the_token_key_is_compared_with_that_of_webapps_only(database: Database) -> None:
    await checks.require_tokens(database, "the key of tokens")
    async with database.transaction() as connection:
        await nodes.join(connection, CoreappNode("core1", "b" * 16, "127.0.0.1:6252", 5.0))
    await checks.require_tokens(database, "the next key of tokens")
    async with database.transaction() as connection:
        await webapp_nodes.renew(connection, WEBAPP, delete_after=60)
    with pytest.raises(SettingsError, match="WA_WEB_JWT_CRYPTO_KEY differs from that of web1:9090"):
        await checks.require_tokens(database, "the key of tokens")


async def test_a_key_may_be_changed_while_no_process_runs(database: Database) -> None:
    await checks.require_link(database, "the link key")
    async with database.transaction() as connection:
        await webapp_nodes.renew(connection, WEBAPP, delete_after=60)
        await webapp_nodes.remove(connection, WEBAPP.incarnation)
    await checks.require_link(database, "another key")
    async with database.reading() as connection:
        kept = await key_checks.find(connection, key_checks.LINK)
    assert kept is not None
    assert len(kept.key_id) == 16
    assert "another" not in kept.key_id


def test_a_data_directory_belongs_to_one_number(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    for _ in range(2):
        data_directory.require_number(directory, "15550000000")
    with pytest.raises(SettingsError, match="data directory of 15550000000"):
        data_directory.require_number(directory, "15551111111")
    (directory / data_directory.NAME).unlink()
    data_directory.require_number(directory, "15551111111")


def test_an_unwritable_data_directory_records_no_number(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    data_directory.require_number(tmp_path / "file", "15550000000")


async def test_of_two_master_keys_of_a_new_database_the_later_one_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = key_checks.find

    async def find_before_the_other(connection: Connection, name: str, *, lock: bool = False) -> KeyCheck | None:
        found = await find(connection, name, lock=lock)
        monkeypatch.undo()
        # Another process starts at the same time, and is faster.
        await checks.require_master(database, SecretKeys.of(b"a" * 32))
        return found

    monkeypatch.setattr(key_checks, "find", find_before_the_other)
    with pytest.raises(SettingsError, match="master key"):
        await checks.require_master(database, SecretKeys.of(b"b" * 32))


async def test_of_two_settings_keys_of_a_new_database_the_later_one_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = key_checks.find

    async def find_before_the_other(connection: Connection, name: str, *, lock: bool = False) -> KeyCheck | None:
        found = await find(connection, name, lock=lock)
        monkeypatch.undo()
        await checks.require_settings(database, SecretKeys.of(b"a" * 32))
        return found

    monkeypatch.setattr(key_checks, "find", find_before_the_other)
    with pytest.raises(SettingsError, match="settings key"):
        await checks.require_settings(database, SecretKeys.of(b"b" * 32))
