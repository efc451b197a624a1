"""New keys for containers that are handed theirs: each process can open what any other seals, at every step."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cli import main, role_files
from tests.conftest import DatabaseFactory
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.e2ee.master_keys import MasterKeys, key_id
from tidings.keys import checks, rotation
from tidings.keys.rotation import CannotRotate, Rotation
from tidings.secrets import process_secrets
from tidings.secrets.process_secrets import CoreappSecrets, SecretKeys, WebappSecrets
from tidings.secrets.secret_files import SecretFiles
from tidings.storage.business import accounts, certificates, key_checks
from tidings.storage.database import Database

ME = "15550000000"


@pytest.fixture(autouse=True)
def volumes_that_processes_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIDINGS_NEW_KEYS", "TIDINGS_DROP_KEYS"):
        monkeypatch.delenv(name, raising=False)
    access = os.access

    def read_only(path: Path, mode: int) -> bool:
        return not str(path).endswith("to/coreapp/secrets") and access(path, mode)

    monkeypatch.setattr(os, "access", read_only)


class Containers:
    """Keys handed to a Webapp and a Coreapp, and the database between them."""

    def __init__(self, directory: Path, database: Database) -> None:
        self.directory = directory
        self.database = database
        self.now = 1_000_000.0

    def provision(self) -> int:
        return main.main(["provision", str(self.directory), f"--to={self.directory}/to", "webapp", "coreapp"])

    @property
    def coreapp(self) -> CoreappSecrets:
        return process_secrets.read(CoreappSecrets, {}, self.directory / "to" / "coreapp")

    @property
    def webapp(self) -> WebappSecrets:
        return process_secrets.read(WebappSecrets, {}, self.directory / "to" / "webapp")

    def rotation(self, name: str) -> Rotation:
        keys = {key_checks.MASTER: self.coreapp.master_key, key_checks.SETTINGS: self.coreapp.settings_key}
        files = SecretFiles(self.directory / "to" / "coreapp")
        return Rotation(name, self.database, files, keys=keys[name], print_line=print, now=lambda: self.now)


@pytest.fixture
async def containers(database_factory: DatabaseFactory, tmp_path: Path) -> Containers:
    found = Containers(tmp_path, await database_factory("business"))
    assert found.provision() == 0
    masters = MasterKeys(found.coreapp.master_key.keys)
    async with found.database.transaction() as connection:
        await accounts.add_account(connection, accounts.Account(ME, 1, b"", b"", masters.wrap(1, b"d" * 32)))
        sealed = SecretSealer(*found.webapp.settings_key.keys).seal(ME, certificates.EXTERNAL, b"canary")
        await certificates.set_certificate(connection, ME, certificates.EXTERNAL, sealed)
    await checks.require_master(found.database, found.coreapp.master_key)
    await checks.require_settings(found.database, found.webapp.settings_key)
    return found


async def test_provisioning_creates_keys_and_a_coreapp_makes_them_current(
    containers: Containers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = {name: containers.rotation(name).keys.keys[0] for name in (key_checks.MASTER, key_checks.SETTINGS)}
    with pytest.raises(CannotRotate, match=r"`tidings provision` make one, with TIDINGS_NEW_KEYS=master"):
        await containers.rotation(key_checks.MASTER).rotate()
    running = SecretSealer(*containers.webapp.settings_key.keys, read=containers.webapp.settings_key.read)
    monkeypatch.setenv("TIDINGS_NEW_KEYS", "master, settings")
    assert containers.provision() == 0
    assert containers.provision() == 0
    assert [len(keys.keys) for keys in (containers.coreapp.master_key, containers.webapp.settings_key)] == [2, 2]
    # A running process and one that starts now open what the other sealed, before and after the rows are resealed.
    by_coreapp = SecretSealer(*containers.coreapp.settings_key.keys).seal(ME, "x", b"1")
    assert running.open(ME, "x", by_coreapp) == b"1"
    for name in old:
        await containers.rotation(name).rotate()
        state = await containers.rotation(name).state()
        assert (state.left, state.ids[1]) == (0, key_id(old[name]))
    await checks.require_master(containers.database, containers.coreapp.master_key)
    await checks.require_settings(containers.database, containers.webapp.settings_key)
    containers.now += rotation.SETTLING
    for name in old:
        await containers.rotation(name).drop()
    ids = ",".join(map(key_id, old.values()))
    said = capsys.readouterr().out
    assert all(f"TIDINGS_DROP_KEYS={one}" in said for one in ids.split(","))
    monkeypatch.delenv("TIDINGS_NEW_KEYS")
    monkeypatch.setenv("TIDINGS_DROP_KEYS", ids)
    assert containers.provision() == 0
    assert containers.provision() == 0
    assert [len(keys.keys) for keys in (containers.coreapp.master_key, containers.webapp.settings_key)] == [1, 1]
    await checks.require_master(containers.database, containers.coreapp.master_key)
    await checks.require_settings(containers.database, containers.webapp.settings_key)
    every = "".join(capsys.readouterr().out) + said
    assert not [key for key in old.values() if key.hex() in every]


async def test_a_new_key_seals_only_after_every_process_can_open_it(
    containers: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[SecretKeys, SecretKeys]] = []
    write = role_files._write

    def watched(path: Path, content: bytes, mode: int) -> bool:
        changed = write(path, content, mode)
        if path.suffix == ".json" and "secrets" in path.parts:
            steps.append((containers.webapp.settings_key, containers.coreapp.settings_key))
        return changed

    monkeypatch.setattr(role_files, "_write", watched)
    monkeypatch.setenv("TIDINGS_NEW_KEYS", "settings")
    assert containers.provision() == 0
    assert len({(one.keys, other.keys) for one, other in steps}) == 4
    for one, other in steps:
        assert one.keys[0] in other.keys
        assert other.keys[0] in one.keys


async def test_dropping_the_current_key_or_naming_an_unknown_kind_is_refused(
    containers: Containers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads((containers.directory / "secrets" / "coreapp.json").read_text())
    monkeypatch.setenv("TIDINGS_DROP_KEYS", key_id(containers.coreapp.master_key.keys[0]))
    assert containers.provision() == 1
    assert "is the current master key" in capsys.readouterr().err
    monkeypatch.delenv("TIDINGS_DROP_KEYS")
    monkeypatch.setenv("TIDINGS_NEW_KEYS", "link")
    assert containers.provision() == 1
    assert "'link' is none of master, settings" in capsys.readouterr().err
    assert json.loads((containers.directory / "secrets" / "coreapp.json").read_text()) == before
