"""Files that `tidings provision` gives to each container: its own secrets and certificate, none of the others'."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cli import database_sql
from cli.database_sql import DatabaseUser
from tidings.secrets import private_files

# Secrets that may consist of several keys: the first one seals, all of them open.
ROTATED = ("master_key", "settings_key")
CERTIFICATE, KEY, AUTHORITY = "tls/certificate.pem", "tls/key.pem", "tls/ca.pem"


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """Role of a container."""

    secrets: str = ""  # process whose file in `secrets/` it gets; empty for none
    certificate: bool = True  # whether it gets a server certificate
    # Names of passwords by the name of the file that contains only that password.
    passwords: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # True for the Tidings image, whose user owns the files. Other images run as other users, so the files in their
    # volumes are readable by everybody; only that container mounts the volume, as with container secrets.
    is_ours: bool = True


_MONITORED = {"api_key": "api_key"}
ROLES: Mapping[str, Role] = {
    "webapp": Role("webapp", passwords={"database_password": "business", "admin_password": "admin", **_MONITORED}),
    "coreapp": Role("coreapp", passwords={"database_password": "business", **_MONITORED}),
    "network": Role(
        "network",
        passwords={
            "database_password": "network",
            "redis_password": "redis",
            "operator_key": "operator_key",
            **_MONITORED,
        },
    ),
    "robots": Role("handset"),
    "migrate": Role(passwords={"database_password": "migrate"}),
    "database": Role(passwords={"root_password": "root"}, is_ours=False),
    "redis": Role(is_ours=False),
    "proxy": Role(is_ours=False),
    "prometheus": Role(passwords=_MONITORED, certificate=False, is_ours=False),
    "grafana": Role(passwords={"admin_password": "grafana"}, certificate=False, is_ours=False),
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFiles:
    """Secrets, passwords and certificates of an installation."""

    directory: Path  # contains `secrets/` and `tls/`
    passwords: Mapping[str, str] = dataclasses.field(repr=False)  # by name
    users: Mapping[str, str]  # database users by the name of their password
    schemas: Mapping[str, Sequence[str]]  # schemas of each database user, by the name of its password


def files(name: str, generated: GeneratedFiles) -> Iterator[tuple[str, bytes]]:
    """Yield path, relative to the role's volume, and content of each file of a role. Raises `OSError`."""
    role = ROLES[name]
    if role.secrets:
        path = f"secrets/{role.secrets}.json"
        yield path, (generated.directory / path).read_bytes()
    tls = generated.directory / "tls"
    yield AUTHORITY, (tls / "ca.pem").read_bytes()
    if role.certificate:
        certificate, key = (tls / f"{name}.pem").read_bytes(), (tls / f"{name}.key").read_bytes()
        yield KEY, key
        yield CERTIFICATE, certificate
        if name == "proxy":
            # HAProxy reads certificate and key from one file.
            yield "tls/certificate-and-key.pem", certificate + key
    for path, password in role.passwords.items():
        yield path, generated.passwords[password].encode()
    if name == "database":
        yield "users.sql", users_sql(generated).encode()
    if name == "redis":
        yield "password.conf", f"requirepass {generated.passwords['redis']}\n".encode()


def users_sql(generated: GeneratedFiles) -> str:
    """Return the SQL that creates schemas and users on a new database server. Users must connect over TLS.

    Users of processes may read and write rows; only the user of migrations may change tables.
    """
    roles = {
        user: [name for name, found in generated.users.items() if found == user] for user in generated.users.values()
    }
    users = [
        DatabaseUser(
            name=user,
            password=generated.passwords[names[0]],
            schemas=[schema for name in names for schema in generated.schemas[name]],
            rights=database_sql.ALL if "migrate" in names else database_sql.READ_AND_WRITE,
        )
        for user, names in roles.items()
    ]
    return database_sql.statements(users)


def add_keys(name: str, generated: GeneratedFiles, volume: Path) -> None:
    """Append missing keys to those in a role's volume, so that it can open with them but does not seal with them.

    Call it for all roles before `write`, which puts new keys first: then every role can open what another one seals.
    Raises `OSError`.
    """
    path = f"secrets/{ROLES[name].secrets}.json"
    try:
        present, kept = (json.loads((directory / path).read_bytes()) for directory in (volume, generated.directory))
    except (FileNotFoundError, ValueError):
        return
    both = {
        field: " ".join(dict.fromkeys(f"{present[field]} {kept[field]}".split()))
        for field in ROTATED
        if field in present and field in kept
    }
    _write(volume / path, json.dumps(present | both, indent=1).encode(), private_files.FILE_MODE)


def write(name: str, generated: GeneratedFiles, volume: Path) -> bool:
    """Write the new and changed files of a role to its volume. Returns whether any changed. Raises `OSError`."""
    is_ours = ROLES[name].is_ours
    changed = False
    private_files.make_directory(volume)
    _set_mode(volume, 0o700 if is_ours else 0o755)
    for path, content in files(name, generated):
        at = volume / path
        if at.parent != volume:
            private_files.make_directory(at.parent)
            _set_mode(at.parent, 0o700 if is_ours else 0o755)
        changed |= _write(at, content, 0o600 if is_ours else 0o644)
    return changed


def _write(path: Path, content: bytes, mode: int) -> bool:
    """Replace a file atomically, unless it has this content already. Returns whether it was replaced."""
    try:
        if path.read_bytes() == content:
            return False
    except FileNotFoundError:
        pass
    private_files.replace(path, content, mode)
    return True


def _set_mode(directory: Path, mode: int) -> None:
    if directory.stat().st_mode & 0o777 != mode:
        directory.chmod(mode)


def read_passwords(path: Path) -> dict[str, str]:
    """Return the passwords by name; empty if the file does not exist. Raises `OSError` and `ValueError`."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a file of passwords")
    return {str(name): str(value) for name, value in found.items()}


def write_passwords(path: Path, passwords: Mapping[str, str]) -> None:
    """Write the passwords, which are on disk when this returns. Raises `OSError`."""
    _write(path, json.dumps(passwords, indent=1).encode(), private_files.FILE_MODE)
