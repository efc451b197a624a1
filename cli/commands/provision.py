"""`tidings provision`: creates the secrets and certificates of an installation in containers.

Each container's volume receives only the files of its role.
"""

from __future__ import annotations

import argparse
import datetime
import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli import role_files
from cli.authority import Authority
from cli.commands.certificates import DAYS, LOOPBACK
from cli.guard import CommandFailure
from cli.role_files import ROLES, GeneratedFiles
from tidings.e2ee.master_keys import key_id
from tidings.secrets import api_key, first_password, secret_sources
from tidings.secrets.process_secrets import KEY_LENGTH
from tidings.secrets.secret_files import ConcurrentChange, SecretFiles, UnusableFile
from tidings.secrets.secret_sources import SecretUnavailable

# Variables by which an operator sets a password instead of a random one.
_GIVEN: Mapping[str, str] = {
    "business": "WA_DB_PASSWORD",
    "network": "WA_DB_PASSWORD",
    "migrate": "WA_DB_PASSWORD",
    "api_key": api_key.VARIABLE,
    "operator_key": api_key.OPERATOR_VARIABLE,
    "admin": first_password.VARIABLE,
}
_OF_DATABASE = ("business", "network", "migrate")
# Variables that change keys: the kinds of keys that get a new key, and the ids of old keys to remove.
NEW_KEYS, DROP_KEYS = "TIDINGS_NEW_KEYS", "TIDINGS_DROP_KEYS"
# Passwords that people type.
_TYPED = ("admin", "grafana")
_PASSWORDS = (*_GIVEN, "root", "redis", "grafana")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the directory of all secrets, the directory of the volumes, and the roles."""
    parser.epilog = (
        f"Roles: {', '.join(ROLES)}. Run again, it makes what is missing and renews certificates. Nothing else "
        f"changes, unless one of {', '.join(dict.fromkeys(_GIVEN.values()))} is set. {NEW_KEYS} (master, settings) "
        f"makes new keys, which every role can open before one seals with them; {DROP_KEYS} takes old ones away, by "
        "their ids."
    )
    parser.add_argument(
        "directory", metavar="DIRECTORY", type=Path, help="directory with the secrets of all roles; no process reads it"
    )
    parser.add_argument(
        "roles",
        metavar="ROLE[=HOST,...]",
        nargs="+",
        help="a role and its host names, besides its own name and loopback",
    )
    parser.add_argument(
        "--to", metavar="VOLUMES", type=Path, required=True, help="the directory of a volume for each role"
    )


def run(options: argparse.Namespace) -> int:
    """Create missing secrets and certificates, copy them to the volumes, and print the files of each role.

    Secrets are not printed. Every volume gets the new keys before any role seals with them.
    """
    wanted = dict(map(_parse, options.roles))
    generated = make(options.directory.expanduser().absolute(), wanted, os.environ)
    change_keys(SecretFiles(generated.directory), os.environ)
    for name in wanted:
        role_files.add_keys(name, generated, options.to / name)
    for name in wanted:
        changed = role_files.write(name, generated, options.to / name)
        paths = " ".join(path for path, _ in role_files.files(name, generated))
        print(f"{'handed' if changed else 'kept  '}  {name:<10}  {paths}")
    return 0


def make(directory: Path, wanted: Mapping[str, tuple[str, ...]], variables: Mapping[str, str]) -> GeneratedFiles:
    """Create missing secrets, passwords and certificates of an installation on disk. Returns all of them.

    Raises `CommandFailure` and `OSError`.

    wanted: host names of each role, by role.
    """
    authority, _ = Authority.open(directory / "tls", datetime.datetime.now(datetime.UTC))
    for name, hosts in wanted.items():
        if ROLES[name].certificate:
            authority.renew(name, tuple(dict.fromkeys((*hosts, name, *LOOPBACK))), DAYS, anyway=False)
    files = SecretFiles(directory)
    try:
        for name in wanted:
            if process := ROLES[name].secrets:
                files.load(process)
        kept = role_files.read_passwords(directory / "passwords.json")
    except (UnusableFile, ValueError) as error:
        raise CommandFailure(str(error)) from None
    passwords = {name: _password(name, variables) or kept.get(name) or _random(name) for name in _PASSWORDS}
    if variables.get("WA_DB_USERNAME"):
        # One database user for all roles.
        passwords |= dict.fromkeys(_OF_DATABASE, passwords["business"])
    role_files.write_passwords(directory / "passwords.json", passwords)
    prefix = variables.get("WA_DB_NAME_PREFIX") or "tidings_"
    schemas = {family: (prefix + family,) for family in ("business", "network")}
    return GeneratedFiles(
        directory=directory,
        passwords=passwords,
        users={name: variables.get("WA_DB_USERNAME") or f"tidings_{name}" for name in _OF_DATABASE},
        schemas={**schemas, "migrate": tuple(schema for (schema,) in schemas.values())},
    )


def change_keys(files: SecretFiles, variables: Mapping[str, str]) -> None:
    """Add a new key before the current one, or remove an old key, as the environment variables request.

    Calling it again changes nothing. Raises `CommandFailure` and `OSError`.
    """
    kept = dict(files.load("coreapp"))
    fields = {field.removesuffix("_key"): field for field in role_files.ROTATED}
    for kind in _words(variables, NEW_KEYS):
        if kind not in fields:
            raise CommandFailure(f"{NEW_KEYS}: {kind!r} is none of {', '.join(fields)}")
        keys = kept[fields[kind]].split()
        if len(keys) == 1:
            keys = [secrets.token_hex(KEY_LENGTH), *keys]
            _replace(files, fields[kind], keys, kept)
        print(f"new     {kind:<10}  {_id(keys[0])}, before {_id(keys[-1])}: `tidings keys rotate` makes it current")
    for dropped in _words(variables, DROP_KEYS):
        for kind, field in fields.items():
            first, *others = kept[field].split()
            if _id(first) == dropped:
                raise CommandFailure(f"{DROP_KEYS}: {dropped} is the current {kind} key")
            rest = [key for key in others if _id(key) != dropped]
            if rest != others:
                _replace(files, field, [first, *rest], kept)
                print(f"dropped {kind:<10}  {dropped}")


def _replace(files: SecretFiles, field: str, keys: Sequence[str], kept: dict[str, str]) -> None:
    try:
        files.replace(field, " ".join(keys), present=kept[field])
    except ConcurrentChange as error:
        raise CommandFailure(f"{error}: is another `tidings provision` running?") from None
    kept[field] = " ".join(keys)


def _words(variables: Mapping[str, str], name: str) -> Sequence[str]:
    return [word.strip() for word in variables.get(name, "").split(",") if word.strip()]


def _id(key: str) -> str:
    return key_id(bytes.fromhex(key))


def _parse(word: str) -> tuple[str, tuple[str, ...]]:
    name, _, hosts = word.partition("=")
    if name not in ROLES:
        raise CommandFailure(f"{name!r} is none of {', '.join(ROLES)}")
    return name, tuple(host.strip() for host in hosts.split(",") if host.strip())


def _password(name: str, variables: Mapping[str, str]) -> str:
    try:
        return secret_sources.read(variables, _GIVEN[name]) if name in _GIVEN else ""
    except SecretUnavailable as error:
        raise CommandFailure(str(error)) from None


def _random(name: str) -> str:
    return first_password.make() if name in _TYPED else secrets.token_hex(24)
