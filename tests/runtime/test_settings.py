"""The environment is read completely, complained about completely, and never shown with its secrets."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidings.runtime import settings
from tidings.runtime.settings import Environment, SettingsError


@dataclasses.dataclass(frozen=True)
class Holder:
    secrets: settings.Secrets
    derived_key: str = dataclasses.field(repr=False)


def test_every_mistake_is_reported_at_once() -> None:
    env = Environment(
        {"A": "x", "B": "-1", "C": "maybe", "D": "nowhere", "E": "fast", "F": "ORACLE", "G": "nan", "H": "150..80"}
    )
    assert env.integer("A", 1) == 1
    assert env.integer("B", 2) == 2
    assert env.flag("C", True) is True
    env.address("D", "127.0.0.1:1")
    assert env.milliseconds_range("E") == (0.0, 0.0)
    assert env.choice("F", "SQLITE", ("SQLITE", "MYSQL")) == "SQLITE"
    assert env.number("G", 0.5) == 0.5
    assert env.milliseconds_range("H") == (0.0, 0.0)
    with pytest.raises(SettingsError) as caught:
        env.check()
    for name in "ABCDEFGH":
        assert f"{name}=" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_good_values_are_read_and_an_empty_one_counts_as_unset() -> None:
    env = Environment({"A": "7", "B": "on", "C": "[::1]:80", "D": "80..150", "E": "mysql", "F": "", "G": "20"})
    assert env.integer("A", 1) == 7
    assert env.flag("B")
    assert env.address("C", "x:1") == ("::1", 80)
    assert env.milliseconds_range("D") == (0.08, 0.15)
    assert env.milliseconds_range("G") == (0.02, 0.02)
    assert env.choice("E", "SQLITE", ("SQLITE", "MYSQL")) == "MYSQL"
    assert env.integer("F", 3) == 3
    env.check()


@pytest.mark.parametrize("port", ["²", "65536", "", "-1", "http"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    env = Environment({"A": f"host:{port}"})
    env.address("A", "x:1")
    with pytest.raises(SettingsError, match="not host:port"):
        env.check()


def test_nothing_set_means_sqlite_in_the_data_directory(tmp_path: Path) -> None:
    where = settings.read_database(Environment({}), tmp_path, "business")
    assert where.url == f"sqlite+aiosqlite:///{tmp_path}/business.db"
    assert where.engine == "sqlite"


def test_the_names_of_the_original_lead_to_mysql_and_its_password_is_never_shown(tmp_path: Path) -> None:
    env = Environment(
        {
            "WA_DB_ENGINE": "MYSQL",
            "WA_DB_HOSTNAME": "db",
            "WA_DB_USERNAME": "who",
            "WA_DB_PASSWORD": "p@ss/w:rd",
            "WA_DB_PORT": "3307",
        }
    )
    where = settings.read_database(env, tmp_path, "network")
    assert where.url == "mysql+aiomysql://who:p%40ss%2Fw%3Ard@db:3307/tidings_network"
    assert repr(where) == "DatabaseSettings(mysql+aiomysql://db:3307/tidings_network)"


@pytest.mark.parametrize("variable", ["WA_DB_SSL_CA", "WA_DB_SSL_CERT", "WA_DB_SSL_KEY"])
def test_encryption_that_is_asked_for_and_not_there_is_told(tmp_path: Path, variable: str) -> None:
    env = Environment({"WA_DB_ENGINE": "MYSQL", variable: "/some/file.pem"})
    settings.read_database(env, tmp_path, "business")
    with pytest.raises(SettingsError, match=variable):
        env.check()


def test_an_address_of_its_own_wins_and_an_unknown_kind_is_refused_without_its_password(tmp_path: Path) -> None:
    env = Environment({"TIDINGS_NETWORK_DB_URL": "postgresql://me:secret@db/x", "WA_DB_ENGINE": "MYSQL"})
    settings.read_database(env, tmp_path, "network")
    with pytest.raises(SettingsError) as caught:
        env.check()
    assert "postgresql://db/x" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_secrets_are_made_once_kept_private_and_never_in_a_repr(tmp_path: Path) -> None:
    env = Environment({})
    first = settings.read_secrets(env, tmp_path)
    second = settings.read_secrets(env, tmp_path)
    env.check()
    assert first == second
    path = tmp_path / "secrets.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["secrets.json"]
    for value in json.loads(path.read_text()).values():
        assert value not in repr(first)
        assert value not in repr(settings.printable(Holder(first, value)))


def test_a_secret_from_the_environment_wins_over_the_kept_one(tmp_path: Path) -> None:
    kept = settings.read_secrets(Environment({}), tmp_path)
    env = Environment({"WA_WEB_JWT_CRYPTO_KEY": "from outside", "TIDINGS_MASTER_KEY": "ab" * 32})
    read = settings.read_secrets(env, tmp_path)
    env.check()
    assert read.jwt_key == "from outside"
    assert read.master_key == bytes.fromhex("ab" * 32)
    assert read.link_key == kept.link_key


@pytest.mark.parametrize("content", ["not json", '{"jwt_key": "x"}'])
def test_a_damaged_file_of_secrets_is_a_clear_mistake_and_is_not_overwritten(tmp_path: Path, content: str) -> None:
    (tmp_path / "secrets.json").write_text(content)
    env = Environment({})
    settings.read_secrets(env, tmp_path)
    with pytest.raises(SettingsError, match=r"secrets\.json"):
        env.check()
    assert (tmp_path / "secrets.json").read_text() == content


def test_a_master_key_of_the_wrong_length_is_refused_without_showing_it(tmp_path: Path) -> None:
    env = Environment({"TIDINGS_MASTER_KEY": "abcd"})
    settings.read_secrets(env, tmp_path)
    with pytest.raises(SettingsError, match="64 hexadecimal") as caught:
        env.check()
    assert "abcd" not in str(caught.value)


def test_a_data_directory_that_cannot_be_made_is_a_mistake_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = Environment({"TIDINGS_DATA_DIR": str(tmp_path / "file" / "data")})
    where = settings.data_dir(env)
    settings.read_secrets(env, where)
    with pytest.raises(SettingsError, match="data directory"):
        env.check()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A directory in which nobody can write, not even root. What `tmp_path / "before"` holds is in it."""
    (tmp_path / "before").mkdir()
    if os.geteuid() != 0:
        (tmp_path / "before").chmod(0o500)
        yield tmp_path / "before"
        return
    where = tmp_path / "mounted"
    where.mkdir()
    if subprocess.run(["mount", "--bind", "-o", "ro", tmp_path / "before", where], capture_output=True).returncode:
        pytest.skip("mounts are not allowed here")
    subprocess.run(["mount", "-o", "remount,bind,ro", where], check=True)
    yield where
    subprocess.run(["umount", where], check=True)


def test_secrets_that_are_there_are_read_from_a_directory_that_cannot_be_written(
    tmp_path: Path, read_only: Path
) -> None:
    if os.geteuid() != 0:
        read_only.chmod(0o700)
    made = settings.read_secrets(Environment({}), tmp_path / "before")
    if os.geteuid() != 0:
        read_only.chmod(0o500)
    env = Environment({"TIDINGS_DATA_DIR": str(read_only)})
    assert settings.read_secrets(env, settings.data_dir(env)) == made
    env.check()


def test_secrets_that_can_be_neither_read_nor_made_are_a_mistake_of_the_settings(read_only: Path) -> None:
    env = Environment({"TIDINGS_DATA_DIR": str(read_only)})
    settings.read_secrets(env, settings.data_dir(env))
    with pytest.raises(SettingsError, match=r"secrets\.json: (Read-only|Permission)"):
        env.check()
