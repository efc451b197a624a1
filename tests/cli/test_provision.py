"""Secrets and certificates of an installation in containers: each role has its own, and a second run changes
nothing."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from cli import main, role_files
from cli.commands import provision
from cli.role_files import ROLES

EVERYBODY = tuple(ROLES)
PROCESSES = ("webapp", "coreapp", "network", "robots")


@pytest.fixture(autouse=True)
def nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("TIDINGS_", "WA_"))]:
        monkeypatch.delenv(name)


def run(where: Path, *roles: str) -> int:
    return main.main(["provision", str(where / "kept"), f"--to={where / 'volumes'}", *roles])


def handed(where: Path) -> dict[str, bytes]:
    volumes = where / "volumes"
    return {str(path.relative_to(volumes)): path.read_bytes() for path in sorted(volumes.rglob("*")) if path.is_file()}


def test_each_process_gets_only_its_own_secrets_and_none_the_authority_key(tmp_path: Path) -> None:
    assert run(tmp_path, *EVERYBODY) == 0
    files = handed(tmp_path)
    assert {path for path in files if path.endswith(".json")} == {
        "webapp/secrets/webapp.json",
        "coreapp/secrets/coreapp.json",
        "network/secrets/network.json",
        "robots/secrets/handset.json",
    }
    master = json.loads(files["coreapp/secrets/coreapp.json"])["master_key"].encode()
    authority = (tmp_path / "kept" / "tls" / "ca.key").read_bytes()
    assert not [path for path, content in files.items() if master in content and not path.startswith("coreapp/")]
    assert not [path for path, content in files.items() if authority in content]
    keys = [content for path, content in files.items() if path.endswith("tls/key.pem")]
    assert len(set(keys)) == len(keys) == 8


def test_shared_secrets_are_the_same_for_every_role_that_needs_them(tmp_path: Path) -> None:
    run(tmp_path, *EVERYBODY)
    files = handed(tmp_path)
    webapp, coreapp = (json.loads(files[f"{name}/secrets/{name}.json"]) for name in ("webapp", "coreapp"))
    assert webapp["link_key"] == coreapp["link_key"]
    assert files["webapp/api_key"] == files["coreapp/api_key"] == files["prometheus/api_key"]
    operators = {path for path, content in files.items() if content == files["network/operator_key"]}
    assert operators == {"network/operator_key"}
    assert files["webapp/database_password"] == files["coreapp/database_password"] != files["network/database_password"]
    assert files["redis/password.conf"] == b"requirepass " + files["network/redis_password"] + b"\n"


def test_a_second_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, *EVERYBODY)
    before = handed(tmp_path)
    capsys.readouterr()
    assert run(tmp_path, *EVERYBODY) == 0
    assert handed(tmp_path) == before
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(EVERYBODY)
    assert all(line.startswith("kept ") for line in said)


def test_no_secret_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, *EVERYBODY)
    said = "".join(capsys.readouterr())
    passwords = role_files.read_passwords(tmp_path / "kept" / "passwords.json")
    assert len(set(passwords.values())) == len(passwords) == 9
    assert not [name for name, password in passwords.items() if password in said]


def test_our_files_are_private_and_those_of_other_images_are_readable(tmp_path: Path) -> None:
    run(tmp_path, *EVERYBODY)
    for path in (tmp_path / "volumes").rglob("*"):
        role = path.relative_to(tmp_path / "volumes").parts[0]
        modes = (0o700, 0o600) if ROLES[role].is_ours else (0o755, 0o644)
        assert stat.S_IMODE(path.stat().st_mode) == modes[path.is_file()], path
    assert stat.S_IMODE((tmp_path / "kept" / "passwords.json").stat().st_mode) == 0o600


def test_database_users_require_tls_and_only_migrations_change_tables(tmp_path: Path) -> None:
    run(tmp_path, "database")
    lines = handed(tmp_path)["database/users.sql"].decode().splitlines()
    created = [line for line in lines if line.startswith("CREATE USER")]
    assert len(created) == 3
    assert all(line.endswith("REQUIRE SSL;") for line in created)
    assert [line for line in lines if line.startswith("GRANT")] == [
        "GRANT SELECT, INSERT, UPDATE, DELETE ON `tidings\\_business`.* TO 'tidings_business'@'%';",
        "GRANT ALL PRIVILEGES ON `tidings\\_business`.* TO 'tidings_migrate'@'%';",
        "GRANT ALL PRIVILEGES ON `tidings\\_network`.* TO 'tidings_migrate'@'%';",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON `tidings\\_network`.* TO 'tidings_network'@'%';",
    ]


def test_given_passwords_are_used_and_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WA_DB_USERNAME", "whatsapp")
    monkeypatch.setenv("WA_DB_PASSWORD", "it's \\ mine")
    monkeypatch.setenv("WA_DB_NAME_PREFIX", "wa`")
    monkeypatch.setenv("WA_API_KEY", "a key for monitoring")
    run(tmp_path, *EVERYBODY)
    files = handed(tmp_path)
    assert {files[f"{name}/database_password"] for name in ("webapp", "coreapp", "network", "migrate")} == {
        b"it's \\ mine"
    }
    assert files["prometheus/api_key"] == b"a key for monitoring"
    sql = files["database/users.sql"].decode()
    assert "CREATE USER IF NOT EXISTS 'whatsapp'@'%' IDENTIFIED BY 'it\\'s \\\\ mine' REQUIRE SSL;" in sql
    assert "GRANT ALL PRIVILEGES ON `wa``network`.* TO 'whatsapp'@'%';" in sql
    assert sql.count("CREATE USER") == 1


def test_one_database_user_without_a_given_password_has_one_for_all_roles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WA_DB_USERNAME", "whatsapp")
    run(tmp_path, "webapp", "network", "migrate")
    files = handed(tmp_path)
    assert len({files[f"{name}/database_password"] for name in ("webapp", "network", "migrate")}) == 1


def test_an_unknown_role_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "webserver") == 1
    assert "'webserver' is none of webapp" in capsys.readouterr().err


def test_every_password_has_an_owner() -> None:
    expected = {password for role in ROLES.values() for password in role.passwords.values()}
    assert expected == set(provision._PASSWORDS)
