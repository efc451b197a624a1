"""Check of the files of an old configuration."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cli import guard
from cli.counts import counted
from cli.moving import compose_file, old_certificates, old_settings, old_templates, old_variables
from cli.moving.compose_file import ComposeService, UnreadableCompose
from cli.moving.findings import OldPart, kept, refused, shown, to_set, unused
from tidings.secrets.first_password import ADMINISTRATOR
from tidings.wire import addresses
from tidings.wire.codes import NOT_FOUND
from tidings.wire.decoding import UNREADABLE
from webapp.api.users.schemas import NewUser
from webapp.http import bodies
from webapp.http.errors import InvalidRequest

MAX_BYTES = 16 * 1024 * 1024  # of one file
_JSON, _PEM, _YAML, _ENV = (".json",), (".pem", ".crt", ".cer"), (".yml", ".yaml"), (".env", "")
_NAMED_ENV = (".env", "env")
# Responses that hold no configuration.
_STATES = ("contacts", "health", "support", "stats", "metrics", "account", "services", "messages")
_PASSWORD = "Tidings-2026!"  # noqa: S105 (a valid one, to check the name beside it)


def check(paths: Sequence[Path], now: datetime.datetime) -> Sequence[OldPart]:
    """Return the parts of a configuration in these files and directories, each once.

    Raises `CommandFailure` for a path that cannot be read or has nothing of an old installation.
    """
    found = dict.fromkeys(part for path in paths for part in _of_path(path, now))
    if not found:
        raise guard.CommandFailure(f"{', '.join(map(str, paths))}: there is no configuration of an old installation")
    return list(found)


def _of_path(path: Path, now: datetime.datetime) -> Iterator[OldPart]:
    if not path.is_dir():
        yield from _of_file(path, now)
        return
    entries = sorted(path.iterdir())
    files = [entry for entry in entries if entry.is_file() and _is_known(entry)]
    if not files:
        raise guard.CommandFailure(f"{path} has no .json, .pem, .crt, .yml or .env file")
    for entry in entries:
        if entry in files:
            yield from _of_file(entry, now)
        else:
            yield unused(f"file {entry.name}", "it is not read: it is no .json, .pem, .crt, .yml or .env file")


def _is_known(path: Path) -> bool:
    return path.suffix.lower() in (*_JSON, *_PEM, *_YAML, ".env") or path.name in _NAMED_ENV


def _of_file(path: Path, now: datetime.datetime) -> Iterator[OldPart]:
    text = _read(path)
    suffix = path.suffix.lower()
    if not text.strip():
        yield unused(f"file {path.name}", "it is empty: the old installation had none of these")
    elif text.lstrip().startswith((b"{", b"[")) or suffix in _JSON:
        yield from _of_json(path, text)
    elif text.lstrip().startswith(old_certificates.BEGIN) or suffix in _PEM:
        yield old_certificates.describe(text, path.name, now)
    elif suffix in _YAML:
        yield from old_variables.describe_services(_services(path, text))
    elif suffix in _ENV or path.name in _NAMED_ENV:
        yield from old_variables.describe(_variables(path, text))
    else:
        raise guard.CommandFailure(f"{path} is neither JSON nor PEM nor a Compose or env file")


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise guard.CommandFailure(f"{path} is over the limit of 16 MiB")
        return path.read_bytes()
    except OSError as error:
        raise guard.CommandFailure(f"{path} cannot be read: {error.strerror}") from None


def _text(path: Path, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise guard.CommandFailure(f"{path} is not UTF-8") from None


def _services(path: Path, text: bytes) -> Mapping[str, ComposeService]:
    """Return the services of a Compose file, whose env files are read too."""
    try:
        found = compose_file.read(_text(path, text))
    except UnreadableCompose as error:
        raise guard.CommandFailure(f"{path} cannot be read: {error}") from None
    services = {}
    for name, service in found.items():
        variables: dict[str, str] = {}
        for file in service.env_files:
            beside = path.parent / file
            variables |= _variables(beside, _read(beside))
        services[name] = ComposeService(service.image, {**variables, **service.variables}, service.env_files)
    return services


def _variables(path: Path, text: bytes) -> Mapping[str, str]:
    found = {}
    for number, line in enumerate(_text(path, text).splitlines(), 1):
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        name, equals, value = line.removeprefix("export ").partition("=")
        if not equals or compose_file.VARIABLE.fullmatch(name.strip()) is None:
            raise guard.CommandFailure(f"{path}, line {number}: not NAME=VALUE")
        found[name.strip()] = value.strip().strip("\"'")
    return found


def _of_json(path: Path, text: bytes) -> Iterator[OldPart]:
    try:
        found = msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"))
    except UNREADABLE as error:
        raise guard.CommandFailure(f"{path} is not JSON: {error}") from None
    if isinstance(found, list):
        found = {"data": found}
    if not isinstance(found, dict) or not (parts := list(_of_response(path, found))):
        raise guard.CommandFailure(
            f"{path} is no response of the old API with settings, users, templates, account or sticker packs"
        )
    yield from parts


def _of_response(path: Path, found: Mapping[str, Any]) -> Iterator[OldPart]:
    errors = found.get("errors")
    if isinstance(errors, list):
        yield _error(path, errors)
    settings = found.get("settings")
    if isinstance(settings, Mapping):
        yield from old_settings.describe(settings)
    for key in old_templates.KEYS:
        if isinstance(found.get(key), list):
            yield from old_templates.describe(found[key], path.name)
            if not found[key]:
                yield unused(f"file {path.name}", "it lists no templates")
    users = found.get("users")
    if isinstance(users, list):
        yield from map(_user, users)
    account = found.get("account")
    if isinstance(account, Mapping) and "shards" in account:
        yield _shards(account["shards"])
    packs = found.get("stickerpacks")
    if isinstance(packs, list):
        yield to_set(counted(len(packs), "sticker pack"), "POST /v1/stickerpacks, then the stickers of each")
    groups = found.get("groups")
    if isinstance(groups, list):
        yield refused(counted(len(groups), "group"), "members cannot be moved: create them again with POST /v1/groups")
    for key in _STATES:
        if key in found and not (key == "account" and isinstance(account, Mapping)):
            yield unused(f"{key} in {path.name}", "it is a state and no configuration")


def _error(path: Path, errors: Sequence[object]) -> OldPart:
    """Return the part for a resource that did not exist. Raises `CommandFailure` for another error of the old API."""
    first = errors[0] if errors and isinstance(errors[0], Mapping) else {}
    if first.get("code") == NOT_FOUND:
        return unused(f"file {path.name}", "the old installation had none of these")
    problem = " ".join(shown(first[key]) for key in ("code", "title") if key in first)
    raise guard.CommandFailure(f"{path} has an error of the old API ({problem}): repeat the call with a valid token")


def _user(user: object) -> OldPart:
    name = user.get("username") if isinstance(user, Mapping) else None
    if isinstance(user, Mapping) and "token" in user:
        return unused("token", "tokens of the old installation are invalid here: log in again, and delete the file")
    if name == ADMINISTRATOR:
        return kept(f"user {name}", "passwords cannot be moved: the first login sets a new one")
    try:
        bodies.check(NewUser, {"username": name, "password": _PASSWORD})
    except InvalidRequest as error:
        return refused(f"user {name}", error.problems[0].details)
    return to_set(f"user {name}", "POST /v1/users with a new password; passwords cannot be moved")


def _shards(value: object) -> OldPart:
    if value not in addresses.COUNTS:
        return refused("shards", "should be 1, 2, 4, 8, 16 or 32")
    return to_set("shards", f"TIDINGS_SHARDS={value} before the first start, or POST /v1/account/shards")
