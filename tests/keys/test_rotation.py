"""Keys of the installation: a wrong key is detected at start, and a new key replaces the old without a stop."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.conftest import DatabaseFactory
from tidings import e2ee
from tidings.aio import crashpoints
from tidings.config.env import SettingsError
from tidings.e2ee import errors, installation_secrets, master_keys, sealing
from tidings.e2ee.installation_secrets import SecretSealer, provider_label
from tidings.e2ee.master_keys import MasterKeys
from tidings.keys import checks, rotation, wrapping
from tidings.keys.rotation import CannotRotate, Rotation
from tidings.secrets import process_secrets
from tidings.secrets.process_secrets import CoreappSecrets, SecretKeys, WebappSecrets
from tidings.secrets.secret_files import SecretFiles
from tidings.storage.business import (
    accounts,
    application_settings,
    certificates,
    key_checks,
    media_providers,
    registrations,
    sealed_rows,
)
from tidings.storage.database import Database

ME = "15550000000"
DATA_KEY = b"d" * 32
URL = "https://user:canary@example.com/?token=canary"


class Killed(BaseException):
    pass


class Scene:
    """Installation left by a release that knew neither key ids nor sealed addresses."""

    def __init__(self, database: Database, directory: Path) -> None:
        self.database = database
        self.directory = directory
        self.files = SecretFiles(directory)
        self.lines: list[str] = []
        self.now = 1_000_000.0

    def secrets(self) -> CoreappSecrets:
        return process_secrets.read(CoreappSecrets, {}, self.directory)

    async def fill(self) -> None:
        found = self.secrets()
        wrapped = sealing.wrap_data_key(found.master_key.keys[0], 1, DATA_KEY)
        sealer = e2ee.Sealer(e2ee.Keyring({1: found.settings_key.keys[0]}))

        def seal(name: str) -> bytes:
            return sealer.seal(b"canary", context=(ME, "", "installation", name))

        async with self.database.transaction() as connection:
            await accounts.add_account(connection, accounts.Account(ME, 1, b"", b"", wrapped))
            await registrations.begin(connection, registrations.PendingRegistration(ME, False, wrapped, b""))
            await certificates.set_certificate(connection, ME, certificates.EXTERNAL, seal(certificates.EXTERNAL))
            secrets = seal(installation_secrets.WEBHOOK_SECRETS)
            await certificates.set_certificate(connection, ME, certificates.WEBHOOK_SECRETS, secrets)
            await certificates.set_certificate(connection, ME, certificates.WEBHOOK_CA, b"public")
            provider = media_providers.MediaProviderRow(ME, "files", "www", seal(provider_label("files")))
            await media_providers.save_providers(connection, [provider])
            await application_settings.change_settings(connection, ME, {"webhooks": {"url": URL}})

    async def start(self) -> None:
        """Run the checks that every process makes at its start."""
        await checks.require_master(self.database, self.secrets().master_key)
        await checks.require_settings(self.database, self.secrets().settings_key)

    def rotation(self, name: str, keys: SecretKeys | None = None) -> Rotation:
        found = self.secrets()
        own = found.master_key if name == key_checks.MASTER else found.settings_key
        return Rotation(
            name, self.database, self.files, keys=keys or own, print_line=self.lines.append, now=lambda: self.now
        )

    async def rotate(self) -> None:
        for name in (key_checks.MASTER, key_checks.SETTINGS):
            await self.rotation(name).rotate()

    async def data_keys(self, keys: Sequence[bytes]) -> set[bytes]:
        async with self.database.reading() as connection:
            found = await sealed_rows.list_data_keys(connection)
        assert len(found) == 2
        return {MasterKeys(keys).unwrap(1, key.wrapped) for key in found}

    async def settings(self, keys: Sequence[bytes]) -> list[bytes]:
        safe = SecretSealer(*keys)
        async with self.database.reading() as connection:
            return [wrapping.open_row(safe, row) for row in await sealed_rows.list_settings(connection)]


@pytest.fixture
async def scene(database_factory: DatabaseFactory, tmp_path: Path) -> Scene:
    made = Scene(await database_factory("business"), tmp_path / "data")
    made.directory.mkdir()
    await made.fill()
    return made


async def test_rotation_replaces_the_old_key_which_then_opens_nothing(scene: Scene) -> None:
    await scene.start()
    old = scene.secrets()
    await scene.rotate()
    both = scene.secrets()
    assert both.master_key.keys[1:] == old.master_key.keys
    assert both.settings_key.keys[1:] == old.settings_key.keys
    with pytest.raises(CannotRotate, match="try again in 60 s"):
        await scene.rotation(key_checks.MASTER).drop()
    scene.now += rotation.SETTLING
    for name in (key_checks.MASTER, key_checks.SETTINGS):
        assert (await scene.rotation(name).state()).left == 0
        await scene.rotation(name).drop()
    new = scene.secrets()
    assert (len(new.master_key.keys), len(new.settings_key.keys)) == (1, 1)
    assert await scene.data_keys(new.master_key.keys) == {DATA_KEY}
    assert await scene.settings(new.settings_key.keys) == [b"canary"] * 3 + [URL.encode()]
    with pytest.raises(errors.UnknownMasterKey):
        await scene.data_keys(old.master_key.keys)
    await scene.start()
    with pytest.raises(SettingsError, match="which this database is sealed under") as caught:
        await checks.require_master(scene.database, SecretKeys.of(*old.master_key.keys))
    assert "\n" not in str(caught.value)
    assert old.master_key.keys[0].hex() not in str(caught.value)
    with pytest.raises(SettingsError, match=r"the settings key .* is not"):
        await checks.require_settings(scene.database, SecretKeys.of(*old.settings_key.keys))
    assert any("2 of 2 rows" in line for line in scene.lines)
    assert not any(key.hex() in "".join(scene.lines) for key in (*both.master_key.keys, *both.settings_key.keys))


@pytest.mark.parametrize("stop_at", range(1, 10))
async def test_a_killed_rotation_resumes_with_the_same_key(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    await scene.start()
    reached = 0

    def reach(name: str) -> None:
        nonlocal reached
        reached += 1
        if reached == stop_at:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(crashpoints, "reach", reach)
        if stop_at < 9:
            with pytest.raises(Killed):
                await scene.rotate()
        else:
            await scene.rotate()
            assert reached == 8, "two keys that are made, two data keys, four secrets"
    # A process that starts now opens everything.
    await scene.start()
    halfway = scene.secrets()
    assert await scene.data_keys(halfway.master_key.keys) == {DATA_KEY}
    assert await scene.settings(halfway.settings_key.keys) == [b"canary"] * 3 + [URL.encode()]
    await scene.rotate()
    done = scene.secrets()
    assert len(done.master_key.keys) == len(done.settings_key.keys) == 2
    assert halfway.master_key.keys[0] in done.master_key.keys
    for name in (key_checks.MASTER, key_checks.SETTINGS):
        assert (await scene.rotation(name).state()).left == 0


async def test_a_new_key_written_for_some_processes_before_a_kill_reaches_all(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.start()
    write = SecretFiles._write

    def killed_behind_the_first(self: SecretFiles, process: str, content: dict[str, str]) -> None:
        if process != "coreapp":
            raise Killed
        write(self, process, content)

    with monkeypatch.context() as patched:
        patched.setattr(SecretFiles, "_write", killed_behind_the_first)
        with pytest.raises(Killed):
            await scene.rotation(key_checks.SETTINGS).rotate()
    await scene.rotation(key_checks.SETTINGS).rotate()
    webapp = process_secrets.read(WebappSecrets, {}, scene.directory).settings_key
    assert webapp == scene.secrets().settings_key
    await checks.require_settings(scene.database, webapp)
    assert await scene.settings(webapp.keys) == [b"canary"] * 3 + [URL.encode()]


async def test_one_of_two_concurrent_rotations_fails_and_no_key_is_lost(scene: Scene) -> None:
    await scene.start()
    [old] = scene.secrets().master_key.keys
    both = f"{'01' * 32} {old.hex()}"

    def read() -> tuple[bytes, ...]:
        scene.files.replace("master_key", both, present=old.hex())
        return (old,)

    late = scene.rotation(key_checks.MASTER, SecretKeys((old,), read, scene.secrets().master_key.source))
    with pytest.raises(CannotRotate, match=r"master_key was changed meanwhile: is another `tidings keys` running\?"):
        await late.rotate()
    assert scene.secrets().master_key.keys == (bytes.fromhex("01" * 32), old)
    await scene.rotation(key_checks.MASTER).rotate()
    assert await scene.data_keys([bytes.fromhex("01" * 32)]) == {DATA_KEY}


async def test_a_wrong_key_fails_every_start_with_a_one_line_error(scene: Scene) -> None:
    wrong = SecretKeys((b"w" * 32,), lambda: (b"w" * 32,), "TIDINGS_MASTER_KEY_FILE")
    with pytest.raises(SettingsError, match=r"^TIDINGS_MASTER_KEY_FILE: is not the master key that this database"):
        await checks.require_master(scene.database, wrong)
    with pytest.raises(SettingsError, match="is not the settings key that this database"):
        await checks.require_settings(scene.database, wrong)
    await scene.start()
    expected = f"{master_keys.key_id(b'w' * 32)} is not {master_keys.key_id(scene.secrets().master_key.keys[0])}"
    with pytest.raises(SettingsError, match=f"^TIDINGS_MASTER_KEY_FILE: the master key {expected}"):
        await checks.require_master(scene.database, wrong)


async def test_configured_keys_rotate_when_a_new_key_precedes_the_old(scene: Scene) -> None:
    await scene.start()
    [old] = scene.secrets().master_key.keys
    given: tuple[bytes, ...] = (old,)
    keys = SecretKeys(given, lambda: given, "TIDINGS_MASTER_KEY_COMMAND")
    with pytest.raises(CannotRotate, match="TIDINGS_MASTER_KEY_COMMAND has no new master key"):
        await scene.rotation(key_checks.MASTER, keys).rotate()
    given = (b"n" * 32,)
    with pytest.raises(CannotRotate, match="must follow the new one"):
        await scene.rotation(key_checks.MASTER, keys).rotate()
    given = (b"n" * 32, old)
    assert await scene.rotation(key_checks.MASTER, keys).rotate() == 2
    assert await scene.data_keys([b"n" * 32]) == {DATA_KEY}
    assert scene.secrets().master_key.keys == (old,), "our own files are not touched"


async def test_the_webhook_url_is_sealed_at_start_and_its_version_stays(scene: Scene) -> None:
    async with scene.database.reading() as connection:
        version = (await connection.execute(sa.select(application_settings.table.c.version))).scalar_one()
    await scene.start()
    async with scene.database.reading() as connection:
        document = (await connection.execute(sa.select(application_settings.table.c.document))).scalar_one()
        assert (await connection.execute(sa.select(application_settings.table.c.version))).scalar_one() == version
    assert "canary" not in document
    assert json.loads(document)["webhooks"]["url"].startswith("sealed:")
    assert URL.encode() in await scene.settings(scene.secrets().settings_key.keys)


async def test_a_concurrently_changed_row_is_not_overwritten(scene: Scene) -> None:
    await scene.start()
    async with scene.database.transaction() as connection:
        rows = await sealed_rows.list_settings(connection)
        [key, *_] = await sealed_rows.list_data_keys(connection)
        for row in rows:
            stale = dataclasses.replace(row, content=b"before", version=row.version + 1)
            assert not await sealed_rows.replace_settings(connection, stale, b"x")
        assert not await sealed_rows.replace_data_key(connection, dataclasses.replace(key, wrapped=b"before"), b"x")
        assert list(await sealed_rows.list_settings(connection)) == list(rows)


def test_a_wrapped_key_names_its_master_key_and_opens_under_no_other() -> None:
    one, two = b"1" * 32, b"2" * 32
    wrapped = MasterKeys([one]).wrap(1, DATA_KEY)
    assert MasterKeys([two, one]).unwrap(1, wrapped) == DATA_KEY
    assert not MasterKeys([two, one]).needs_current(wrapped)
    with pytest.raises(errors.UnknownMasterKey, match=master_keys.key_id(one)):
        MasterKeys([two]).unwrap(1, wrapped)
    for damaged in (wrapped[:-1], wrapped[:-1] + bytes([wrapped[-1] ^ 1]), wrapped[:12] + b"\x02" + wrapped[13:]):
        with pytest.raises(e2ee.CorruptState):
            MasterKeys([one]).unwrap(1, damaged)
    with pytest.raises(e2ee.CorruptState):
        MasterKeys([one]).unwrap(2, wrapped)
    loads: list[int] = []
    late = MasterKeys([two], lambda: loads.append(1) or [one, two])  # type: ignore[func-returns-value]
    late.reload()
    assert (late.unwrap(1, wrapped), late.current, loads) == (DATA_KEY, master_keys.key_id(one), [1])


def test_a_running_process_loads_a_new_settings_key() -> None:
    keys: list[bytes] = [b"1" * 32]
    running = SecretSealer(*keys, read=lambda: tuple(keys))
    keys.insert(0, b"2" * 32)
    by_another = SecretSealer(*keys).seal("me", "name", b"content")
    assert running.open("me", "name", by_another) == b"content"
    assert running.needs_current(running.seal("me", "name", b"x"))
    keys.pop()
    running.seal("me", "name", b"x")
    assert len(running.ids) == 1
