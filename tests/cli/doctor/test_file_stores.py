"""A directory other than the recorded one is an error of `tidings doctor`, and a command can adopt it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cli import main
from cli.doctor.file_stores import BucketCheck, RecordedStoreCheck
from cli.doctor.findings import Level
from tests.conftest import DatabaseFactory
from tidings.installation.settings import DatabaseSettings
from tidings.objects import identity
from tidings.objects.directory import DirectoryStore
from tidings.storage import schema
from tidings.storage.database import Database


async def test_the_doctor_refuses_a_directory_without_the_marker(
    database_factory: DatabaseFactory, tmp_path: Path
) -> None:
    database = await database_factory("business")

    async def look(name: str) -> tuple[Level, str, str]:
        store = DirectoryStore(tmp_path / name)
        (finding,) = await RecordedStoreCheck(identity.of_media(database, store), store).run()
        return finding.level, finding.text, finding.remedy

    assert (await look("media"))[0] is Level.WARNING
    await identity.of_media(database, DirectoryStore(tmp_path / "media")).claim()
    assert (await look("media"))[0] is Level.FINE
    (tmp_path / "other").mkdir()
    for name in ("other", "not-there"):
        level, text, remedy = await look(name)
        assert level is Level.ERROR
        assert f"{tmp_path / name} has no marker file" in text
        assert "tidings files adopt media" in remedy


@pytest.mark.parametrize(
    ("rule", "level"),
    [
        ({"Filter": {"Prefix": ""}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1}}, Level.FINE),
        ({"Filter": {"Prefix": "other/"}, "Expiration": {"Days": 1}}, Level.WARNING),
        ({"Filter": {"Prefix": "one/files/"}, "Expiration": {"Days": 13}}, Level.ERROR),
        ({"Prefix": "one/", "Expiration": {"Days": 13}}, Level.ERROR),
        ({"Filter": {"Prefix": "one/files/"}, "Expiration": {"Days": 15}}, Level.WARNING),
    ],
)
def test_a_lifecycle_rule_that_deletes_files_too_early_is_an_error(
    tmp_path: Path, rule: dict[str, object], level: Level
) -> None:
    blobs = BucketCheck("blobs", DirectoryStore(tmp_path), keeps=14 * 86400)
    assert blobs.evaluate([rule], "one/files/").level is level
    media = BucketCheck("media", DirectoryStore(tmp_path), keeps=None)
    expires = "Expiration" in rule and level is not Level.WARNING
    assert (media.evaluate([rule], "one/files/").level is Level.ERROR) is (
        expires or rule.get("Expiration") == {"Days": 15}
    )


@pytest.mark.parametrize(("family", "name"), [("business", "media"), ("network", "blobs")])
def test_a_command_adopts_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], family: str, name: str
) -> None:
    monkeypatch.setenv("TIDINGS_DATA_DIR", str(tmp_path))

    async def prepare() -> None:
        database = Database(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/{family}.db"), family)
        await schema.prepare(database, migrate=True)
        of = identity.of_media if name == "media" else identity.of_blobs
        await of(database, DirectoryStore(tmp_path / name)).claim()
        await database.close()

    asyncio.run(prepare())
    assert main.main(["files", "status", name]) == 0
    (tmp_path / name).rename(tmp_path / "away")
    (tmp_path / name).mkdir()
    assert main.main(["files", "status", name]) == 1
    assert f"tidings files adopt {name}" in capsys.readouterr().err
    assert main.main(["files", "adopt", name]) == 0
    assert main.main(["files", "status", name]) == 0
