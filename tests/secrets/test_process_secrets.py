"""Secrets of a process: configured or generated once, separate for each process, and on disk before they are
used."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from cli import installation
from cli.settings import CoreappSettings
from tidings import e2ee
from tidings.config import env
from tidings.config.env import SettingsError
from tidings.installation import settings
from tidings.secrets import operator_key, process_secrets, secret_files, secret_sources
from tidings.secrets.process_secrets import CoreappSecrets, HandsetSecrets, NetworkSecrets, SecretKeys, WebappSecrets
from tidings.secrets.secret_files import OWNERS, SecretFiles
from tidings.storage.database import Database

HEX = "ab" * 32
OLD = {
    "jwt_key": "j" * 64,
    "link_key": "l" * 64,
    "registration_key": "r" * 64,
    "master_key": "cd" * 32,
    "webhook_secret": "whsec_" + "A" * 43 + "=",
}


class Holder(settings.InstallationSettings):
    secrets: Annotated[CoreappSecrets, process_secrets.secrets_of(CoreappSecrets)] = env.COMPUTED


class WebappHolder(settings.InstallationSettings):
    secrets: Annotated[WebappSecrets, process_secrets.secrets_of(WebappSecrets)] = env.COMPUTED


def of_coreapp(directory: Path, **variables: str) -> CoreappSecrets:
    return Holder.read({"TIDINGS_DATA_DIR": str(directory), **variables}).secrets


def secrets(directory: Path, **variables: str) -> WebappSecrets:
    return WebappHolder.read({"TIDINGS_DATA_DIR": str(directory), **variables}).secrets


def files(directory: Path) -> dict[str, dict[str, str]]:
    return {path.stem: json.loads(path.read_text()) for path in (directory / "secrets").iterdir()}


def test_each_process_has_a_file_with_only_its_secrets_and_shared_ones_match(tmp_path: Path) -> None:
    first = of_coreapp(tmp_path)
    made = files(tmp_path)
    assert {name: tuple(content) for name, content in made.items()} == dict(OWNERS)
    assert "master_key" not in made["webapp"]
    for field in ("link_key", "registration_key", "settings_key"):
        assert len({content[field] for content in made.values() if field in content}) == 1
    assert of_coreapp(tmp_path) == first
    assert secrets(tmp_path).link_key == first.link_key
    assert process_secrets.read(NetworkSecrets, {}, tmp_path).registration_key == first.registration_key
    assert process_secrets.read(HandsetSecrets, {}, tmp_path).registration_key == first.registration_key
    for path in (tmp_path / "secrets").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700
    shown = repr(first) + repr(first.master_key) + repr(env.printable(Holder(data_dir=tmp_path, secrets=first)))
    assert not any(value in shown for content in files(tmp_path).values() for value in content.values())


def test_concurrent_starts_generate_secrets_once(tmp_path: Path) -> None:
    found: list[CoreappSecrets] = []
    threads = [threading.Thread(target=lambda: found.append(of_coreapp(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({(one.link_key, one.master_key.keys) for one in found}) == 1


def test_secrets_json_of_earlier_releases_is_split_with_the_same_secrets(tmp_path: Path) -> None:
    (tmp_path / "secrets.json").write_text(json.dumps(OLD))
    found = of_coreapp(tmp_path)
    assert found.master_key.keys == (bytes.fromhex(OLD["master_key"]),)
    assert (found.link_key, found.webhook_secret) == (OLD["link_key"], OLD["webhook_secret"])
    assert secrets(tmp_path).jwt_key == OLD["jwt_key"]
    assert not (tmp_path / "secrets.json").exists()
    # Settings and handsets' stores were sealed under a key derived from it.
    ring = e2ee.Keyring.from_master(bytes.fromhex(OLD["master_key"]), 1)
    assert found.settings_key.keys == (ring.data_keys[1],)
    assert process_secrets.read(HandsetSecrets, {}, tmp_path).handset_key.keys == (ring.data_keys[1],)


@pytest.mark.parametrize("left", [{}, OLD])
def test_a_process_without_the_master_key_generates_no_keys_derived_from_it(
    tmp_path: Path, left: dict[str, str]
) -> None:
    # In earlier releases every process created this one file when its environment lacked anything.
    if left:
        (tmp_path / "secrets.json").write_text(json.dumps(left))
    derived = secret_files.derive(bytes.fromhex(HEX))
    first = process_secrets.read(NetworkSecrets, {}, tmp_path)
    assert files(tmp_path)["webapp"]["settings_key"] == files(tmp_path)["handset"]["handset_key"] == ""
    assert secrets(tmp_path, TIDINGS_MASTER_KEY=HEX).settings_key.keys == (derived,)
    assert of_coreapp(tmp_path, TIDINGS_MASTER_KEY=HEX).settings_key.keys == (derived,)
    assert process_secrets.read(HandsetSecrets, {"TIDINGS_MASTER_KEY": HEX}, tmp_path).handset_key.keys == (derived,)
    assert secrets(tmp_path).settings_key.keys == (derived,)
    assert process_secrets.read(NetworkSecrets, {}, tmp_path) == first
    assert all(all(content.values()) for content in files(tmp_path).values())


def test_robots_open_their_store_during_a_rotation_of_the_master_key(tmp_path: Path) -> None:
    variables = {"TIDINGS_MASTER_KEY": HEX, "TIDINGS_REGISTRATION_KEY": "r"}
    before = process_secrets.read(HandsetSecrets, variables, tmp_path).handset_key
    both = variables | {"TIDINGS_MASTER_KEY": f"{'01' * 32} {HEX}"}
    assert process_secrets.read(HandsetSecrets, both, tmp_path).handset_key.keys[0] == before.keys[0]
    found = of_coreapp(tmp_path, TIDINGS_LINK_KEY="l", TIDINGS_WEBHOOK_SECRET=OLD["webhook_secret"], **both)
    assert not (tmp_path / "secrets").exists()
    given = installation.environment_of("robots", both, found)
    assert process_secrets.read(HandsetSecrets, given, tmp_path).handset_key.keys[0] == before.keys[0]
    assert found.settings_key.keys == tuple(map(secret_files.derive, found.master_key.keys))


def test_a_killed_split_of_secrets_json_resumes_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    class Killed(BaseException):
        pass

    def run(directory: Path, stop_at: int) -> None:
        nonlocal steps
        steps = 0
        directory.mkdir()
        (directory / "secrets.json").write_text(json.dumps(OLD))

        def counted(call: Any) -> Any:
            def wrapped(*arguments: Any, **named: Any) -> Any:
                nonlocal steps
                steps += 1
                if steps == stop_at:
                    raise Killed
                return call(*arguments, **named)

            return wrapped

        with monkeypatch.context() as patched:
            for module, name in ((os, "fsync"), (os, "replace"), (Path, "unlink")):
                patched.setattr(module, name, counted(getattr(module, name)))
            of_coreapp(directory)

    run(tmp_path / "whole", 0)
    total = steps
    assert total > 10
    for stop_at in range(1, total + 1):
        directory = tmp_path / str(stop_at)
        with pytest.raises(Killed):
            run(directory, stop_at)
        found = of_coreapp(directory)
        assert found.master_key.keys == (bytes.fromhex(OLD["master_key"]),)
        assert secrets(directory).jwt_key == OLD["jwt_key"]
        assert secrets(directory).settings_key == found.settings_key
        assert not (directory / "secrets.json").exists()


async def test_secrets_are_synced_to_disk_before_the_first_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted(descriptor: int) -> None:
        fsync(descriptor)
        calls.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).relative_to(tmp_path)}")

    def renamed(source: Path, target: Path) -> None:
        replace(source, target)
        calls.append(f"rename {Path(source).name} {Path(target).name}")

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", renamed)
    found = CoreappSettings.read({"TIDINGS_DATA_DIR": str(tmp_path)})
    calls.append("database")
    database = Database(found.business, "business")
    async with database.transaction() as connection:
        await connection.exec_driver_sql("CREATE TABLE first (a INT)")
    await database.close()
    for process in OWNERS:
        draft = f".{process}.json.{os.getpid()}"
        written = calls.index(f"fsync secrets/{draft}")
        assert calls[written + 1 : written + 3] == [f"rename {draft} {process}.json", "fsync secrets"]
    # The name of the directory itself, last of all.
    assert calls[-2:] == ["fsync .", "database"]


@pytest.mark.parametrize("how", ["", "_FILE", "_COMMAND"])
def test_the_master_key_comes_from_the_environment_a_file_or_a_command(tmp_path: Path, how: str) -> None:
    file = tmp_path / "key"
    file.write_text(f"{HEX}\n")
    value = {"": HEX, "_FILE": str(file), "_COMMAND": f"{sys.executable} -c 'print(open(\"{file}\").read())'"}[how]
    found = of_coreapp(tmp_path / "data", **{f"TIDINGS_MASTER_KEY{how}": value}).master_key
    assert found.keys == (bytes.fromhex(HEX),)
    file.write_text(f"{'01' * 32}\n{HEX}\n")
    expected = [HEX] if not how else ["01" * 32, HEX]
    assert [key.hex() for key in found.read()] == expected


def test_secrets_may_come_from_files_and_given_ones_override_stored_ones(tmp_path: Path) -> None:
    kept = secrets(tmp_path)
    file = tmp_path / "key"
    file.write_text("from a file, and long enough\n")
    found = secrets(tmp_path, WA_WEB_JWT_CRYPTO_KEY_FILE=str(file))
    assert (found.jwt_key, found.link_key) == ("from a file, and long enough", kept.link_key)
    assert secrets(tmp_path, TIDINGS_LINK_KEY="from outside").link_key == "from outside"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"TIDINGS_MASTER_KEY": "abcd"}, "TIDINGS_MASTER_KEY is not 64 hexadecimal digits"),
        ({"TIDINGS_MASTER_KEY": f"{HEX} {HEX}"}, "different keys"),
        ({"TIDINGS_MASTER_KEY_FILE": "/nowhere"}, "TIDINGS_MASTER_KEY_FILE: No such file or directory"),
        ({"TIDINGS_MASTER_KEY_COMMAND": "/nowhere/kms"}, "TIDINGS_MASTER_KEY_COMMAND: No such file"),
        ({"TIDINGS_MASTER_KEY_COMMAND": "'"}, "TIDINGS_MASTER_KEY_COMMAND: is not a command"),
        ({"TIDINGS_MASTER_KEY_COMMAND": "false"}, "TIDINGS_MASTER_KEY_COMMAND: ended with status 1"),
        ({"TIDINGS_MASTER_KEY_COMMAND": "true"}, "TIDINGS_MASTER_KEY_COMMAND: is empty"),
        ({"TIDINGS_MASTER_KEY_COMMAND": "cat /dev/zero"}, "TIDINGS_MASTER_KEY_COMMAND: more than 16384 bytes"),
        (
            {"TIDINGS_MASTER_KEY_COMMAND": "head -c 64 /dev/urandom"},
            "TIDINGS_MASTER_KEY_COMMAND(: is not text| is not)",
        ),
        (
            {"TIDINGS_LINK_KEY": "a", "TIDINGS_LINK_KEY_FILE": "b"},
            "TIDINGS_LINK_KEY and TIDINGS_LINK_KEY_FILE are both",
        ),
    ],
)
def test_an_unusable_secret_is_one_error_line_without_the_value(
    tmp_path: Path, variables: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        of_coreapp(tmp_path, **variables)
    assert "abcd" not in str(caught.value)
    assert HEX not in str(caught.value)


def test_a_key_command_has_no_shell_no_secrets_and_a_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    command = f"env --split-string='sh -c \"env > {seen}; echo {HEX}\"'"
    variables = {"PATH": os.environ["PATH"], "TIDINGS_LINK_KEY": "hidden", "WA_DB_PASSWORD": "hidden"}
    of_coreapp(tmp_path / "data", TIDINGS_MASTER_KEY_COMMAND=command, **variables)
    assert "hidden" not in seen.read_text()
    assert "PATH=" in seen.read_text()
    with pytest.raises(SettingsError, match="TIDINGS_MASTER_KEY_COMMAND is not"):
        of_coreapp(tmp_path / "data", TIDINGS_MASTER_KEY_COMMAND=f"echo {HEX}; echo {HEX}", **variables)
    monkeypatch.setattr(secret_sources, "COMMAND_SECONDS", 0.2)
    started = time.monotonic()
    with pytest.raises(SettingsError, match=r"no response within 0\.2 s"):
        of_coreapp(tmp_path / "data", TIDINGS_MASTER_KEY_COMMAND="sleep 60", **variables)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("content", ["not json", "[]", "{}"])
def test_a_damaged_secrets_file_is_reported_and_not_overwritten(tmp_path: Path, content: str) -> None:
    secrets(tmp_path)
    path = SecretFiles(tmp_path).path("webapp")
    path.write_text(content)
    with pytest.raises(SettingsError, match=r"webapp\.json"):
        secrets(tmp_path)
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["not json", '{"jwt_key": "x"}'])
def test_a_damaged_secrets_json_of_an_earlier_release_is_not_split(tmp_path: Path, content: str) -> None:
    (tmp_path / "secrets.json").write_text(content)
    with pytest.raises(SettingsError, match=r"secrets\.json"):
        secrets(tmp_path)
    assert (tmp_path / "secrets.json").read_text() == content


def test_replace_changes_a_secret_in_every_file_that_contains_it(tmp_path: Path) -> None:
    of_coreapp(tmp_path)
    before = files(tmp_path)
    with pytest.raises(secret_files.ConcurrentChange):
        SecretFiles(tmp_path).replace("settings_key", "new", present="other")
    assert files(tmp_path) == before
    present = before["coreapp"]["settings_key"]
    changed = SecretFiles(tmp_path).replace("settings_key", "new", present=present)
    assert [path.stem for path in changed] == ["coreapp", "webapp"]
    for name, content in files(tmp_path).items():
        assert content == before[name] | ({"settings_key": "new"} if "settings_key" in content else {})


def test_child_processes_get_only_their_own_secrets(tmp_path: Path) -> None:
    variables = {
        "PATH": "/bin",
        "TIDINGS_MASTER_KEY": HEX,
        "TIDINGS_LINK_KEY_FILE": "/link",
        "WA_WEB_JWT_CRYPTO_KEY": "jwt",
        "TIDINGS_REGISTRATION_KEY": "registration",
        "TIDINGS_WEBHOOK_SECRET": "whsec",
        "WA_DB_PASSWORD": "db",
        "TIDINGS_BUSINESS_DB_URL": "mysql://b",
        "TIDINGS_NETWORK_DB_URL": "mysql://n",
        "WA_API_KEY": "api",
        "TIDINGS_OPERATOR_KEY": "operator",
        "TIDINGS_CONSOLE": "1",
    }
    found = CoreappSecrets(
        link_key="l",
        registration_key="r",
        master_key=SecretKeys.of(bytes.fromhex(HEX)),
        settings_key=SecretKeys((secret_files.derive(bytes.fromhex(HEX)),), tuple, "TIDINGS_MASTER_KEY"),
        webhook_secret="w",
    )
    derived = secret_files.derive(bytes.fromhex(HEX)).hex()
    given = {
        name: installation.environment_of(name, variables, found) for name in ("webapp", "coreapp", "network", "robots")
    }
    own = {name: set(child) - {"PATH", "TIDINGS_CONSOLE"} for name, child in given.items()}
    assert own["webapp"] == {
        "TIDINGS_LINK_KEY_FILE",
        "WA_WEB_JWT_CRYPTO_KEY",
        "WA_DB_PASSWORD",
        "TIDINGS_BUSINESS_DB_URL",
        "WA_API_KEY",
        "TIDINGS_SETTINGS_KEY",
        "TIDINGS_CONSOLE_KEY",
    }
    assert given["webapp"]["TIDINGS_CONSOLE_KEY"] == operator_key.derive(bytes.fromhex(HEX))
    for off in ({"TIDINGS_CONSOLE": "0"}, {"TIDINGS_CONSOLE": ""}):
        assert "TIDINGS_CONSOLE_KEY" not in installation.environment_of("webapp", variables | off, found)
    assert own["coreapp"] == {
        "TIDINGS_LINK_KEY_FILE",
        "TIDINGS_MASTER_KEY",
        "TIDINGS_REGISTRATION_KEY",
        "TIDINGS_WEBHOOK_SECRET",
        "WA_DB_PASSWORD",
        "TIDINGS_BUSINESS_DB_URL",
        "WA_API_KEY",
        "TIDINGS_SETTINGS_KEY",
    }
    # Each process that serves metrics has the key for them.
    assert own["network"] == {
        "TIDINGS_REGISTRATION_KEY",
        "WA_DB_PASSWORD",
        "TIDINGS_NETWORK_DB_URL",
        "WA_API_KEY",
        "TIDINGS_OPERATOR_KEY",
    }
    assert own["robots"] == {"TIDINGS_REGISTRATION_KEY", "TIDINGS_HANDSET_KEY"}
    assert given["webapp"]["TIDINGS_SETTINGS_KEY"] == given["robots"]["TIDINGS_HANDSET_KEY"] == derived


def test_keys_do_not_retain_other_environment_variables(tmp_path: Path) -> None:
    found = secrets(tmp_path, WA_API_KEY="hidden")
    cells = [cell.cell_contents for cell in found.settings_key.read.__closure__ or ()]
    assert "hidden" not in repr([vars(cell) if hasattr(cell, "__dict__") else cell for cell in cells])


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory in which no process can write, not even root's. It has the contents of `tmp_path /
    "before"`."""
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


def test_existing_secrets_are_read_from_a_read_only_directory(tmp_path: Path, read_only: Path) -> None:
    if os.geteuid() != 0:
        read_only.chmod(0o700)
    made = secrets(tmp_path / "before")
    if os.geteuid() != 0:
        read_only.chmod(0o500)
    assert secrets(read_only) == made


def test_missing_secrets_in_a_read_only_directory_raise_settingserror(read_only: Path) -> None:
    with pytest.raises(SettingsError, match=r"webapp\.json: (Read-only|Permission)"):
        secrets(read_only)
