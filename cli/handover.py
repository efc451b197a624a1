"""What each container of an installation is handed: its own secrets, its certificate, and nothing of the others."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cli import database_sql
from cli.database_sql import User
from tidings.runtime import private_files

# Fields of secrets that may have several keys, of which the first seals and all open.
ROTATED = ("master_key", "settings_key")
CERTIFICATE, KEY, AUTHORITY = "tls/certificate.pem", "tls/key.pem", "tls/ca.pem"


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """Role of a container.

    secrets:     whose file of `secrets/` it has; empty for none.
    certificate: it has one of its own, by which others call it.
    passwords:   files with one password each, by what they are called there.
    is_ours:     it runs our image, whose user owns the files. Other images have users of their own, so everybody may
                 read what is in their volumes: in a volume that is theirs alone, as container secrets are.
    """

    secrets: str = ""
    certificate: bool = True
    passwords: Mapping[str, str] = dataclasses.field(default_factory=dict)
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
class Made:
    """Made for an installation.

    directory:  with `secrets/` and `tls/`.
    passwords:  by their names.
    users:      of the database: their names by the names of their passwords; schemas: by the same names, each user's.
    """

    directory: Path
    passwords: Mapping[str, str] = dataclasses.field(repr=False)
    users: Mapping[str, str]
    schemas: Mapping[str, Sequence[str]]


def files(name: str, made: Made) -> Iterator[tuple[str, bytes]]:
    """Path and content of each file of a role, relative to its volume. Raises `OSError`."""
    role = ROLES[name]
    if role.secrets:
        path = f"secrets/{role.secrets}.json"
        yield path, (made.directory / path).read_bytes()
    tls = made.directory / "tls"
    yield AUTHORITY, (tls / "ca.pem").read_bytes()
    if role.certificate:
        certificate, key = (tls / f"{name}.pem").read_bytes(), (tls / f"{name}.key").read_bytes()
        yield KEY, key
        yield CERTIFICATE, certificate
        if name == "proxy":
            # One file, as HAProxy has it.
            yield "tls/certificate-and-key.pem", certificate + key
    for path, password in role.passwords.items():
        yield path, made.passwords[password].encode()
    if name == "database":
        yield "users.sql", users_sql(made).encode()
    if name == "redis":
        yield "password.conf", f"requirepass {made.passwords['redis']}\n".encode()


def users_sql(made: Made) -> str:
    """Schemas and users, for a database server that starts on an empty directory. They come over TLS or not at all.

    Processes read and write rows; only the user of migrations changes tables.
    """
    roles = {user: [name for name, found in made.users.items() if found == user] for user in made.users.values()}
    users = [
        User(
            name=user,
            password=made.passwords[names[0]],
            schemas=[schema for name in names for schema in made.schemas[name]],
            rights=database_sql.ALL if "migrate" in names else database_sql.READ_AND_WRITE,
        )
        for user, names in roles.items()
    ]
    return database_sql.statements(users)


def hand_keys(name: str, made: Made, volume: Path) -> None:
    """Give a role the keys that it has not got, behind its own: it opens what is sealed under them, and seals under
    none. So when `hand` brings them forward, everybody opens what anybody seals. Raises `OSError`."""
    path = f"secrets/{ROLES[name].secrets}.json"
    try:
        present, kept = (json.loads((directory / path).read_bytes()) for directory in (volume, made.directory))
    except (FileNotFoundError, ValueError):
        return
    both = {
        field: " ".join(dict.fromkeys(f"{present[field]} {kept[field]}".split()))
        for field in ROTATED
        if field in present and field in kept
    }
    _write(volume / path, json.dumps(present | both, indent=1).encode(), private_files.FILE_MODE)


def hand(name: str, made: Made, volume: Path) -> bool:
    """Put a role's files into its volume, as far as they are not there; has anything changed? Raises `OSError`."""
    is_ours = ROLES[name].is_ours
    changed = False
    private_files.make_directory(volume)
    _set_mode(volume, 0o700 if is_ours else 0o755)
    for path, content in files(name, made):
        at = volume / path
        if at.parent != volume:
            private_files.make_directory(at.parent)
            _set_mode(at.parent, 0o700 if is_ours else 0o755)
        changed |= _write(at, content, 0o600 if is_ours else 0o644)
    return changed


def _write(path: Path, content: bytes, mode: int) -> bool:
    """Whole at any time. A file that has this content already stays."""
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
    """Those of an installation, by their names; empty before the first start. Raises `OSError` and `ValueError`."""
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a file of passwords")
    return {str(name): str(value) for name, value in found.items()}


def write_passwords(path: Path, passwords: Mapping[str, str]) -> None:
    """On disk when this returns. Raises `OSError`."""
    _write(path, json.dumps(passwords, indent=1).encode(), private_files.FILE_MODE)
