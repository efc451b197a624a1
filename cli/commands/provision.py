"""`tidings provision`: the secrets and certificates of an installation in containers, handed to each its own."""

from __future__ import annotations

import argparse
import datetime
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from cli import handover
from cli.authority import Authority
from cli.commands.certificates import DAYS, LOOPBACK
from cli.guard import Failure
from cli.handover import ROLES, Made
from tidings.runtime import api_key, first_password, secret_sources
from tidings.runtime.secret_files import SecretFiles, UnusableFile
from tidings.runtime.secret_sources import SecretUnavailable

# By which an operator gives a password in the place of a random one.
_GIVEN: Mapping[str, str] = {
    "business": "WA_DB_PASSWORD",
    "network": "WA_DB_PASSWORD",
    "migrate": "WA_DB_PASSWORD",
    "api_key": api_key.VARIABLE,
    "admin": first_password.VARIABLE,
}
_OF_DATABASE = ("business", "network", "migrate")
# Typed by people.
_TYPED = ("admin", "grafana")
_PASSWORDS = (*_GIVEN, "root", "redis", "grafana")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where they are kept, where the volumes are, and who is to have one."""
    parser.epilog = (
        f"Roles: {', '.join(ROLES)}. Run again, it makes what is missing and renews certificates. Nothing else "
        f"changes, unless one of {', '.join(dict.fromkeys(_GIVEN.values()))} is set."
    )
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="where all of them are kept: no process's")
    parser.add_argument(
        "roles",
        metavar="ROLE[=HOST,...]",
        nargs="+",
        help="a role, and what others call it by, besides its name and loopback",
    )
    parser.add_argument(
        "--to", metavar="VOLUMES", type=Path, required=True, help="the directory of a volume for each role"
    )


def run(options: argparse.Namespace) -> int:
    """Make what is missing, hand it over, and say who got what; no secret is shown."""
    wanted = dict(map(_parse, options.roles))
    made = make(options.directory.expanduser().absolute(), wanted, os.environ)
    for name in wanted:
        changed = handover.hand(name, made, options.to / name)
        paths = " ".join(path for path, _ in handover.files(name, made))
        print(f"{'handed' if changed else 'kept  '}  {name:<10}  {paths}")
    return 0


def make(directory: Path, wanted: Mapping[str, tuple[str, ...]], variables: Mapping[str, str]) -> Made:
    """Everything of an installation, on disk; wanted: the hosts of each role. Raises `Failure` and `OSError`."""
    authority, _ = Authority.open(directory / "tls", datetime.datetime.now(datetime.UTC))
    for name, hosts in wanted.items():
        if ROLES[name].certificate:
            authority.renew(name, tuple(dict.fromkeys((*hosts, name, *LOOPBACK))), DAYS, anyway=False)
    files = SecretFiles(directory)
    try:
        for name in wanted:
            if process := ROLES[name].secrets:
                files.load(process)
        kept = handover.read_passwords(directory / "passwords.json")
    except (UnusableFile, ValueError) as error:
        raise Failure(str(error)) from None
    passwords = {name: _password(name, variables) or kept.get(name) or _random(name) for name in _PASSWORDS}
    if variables.get("WA_DB_USERNAME"):
        # One user for all of them.
        passwords |= dict.fromkeys(_OF_DATABASE, passwords["business"])
    handover.write_passwords(directory / "passwords.json", passwords)
    prefix = variables.get("WA_DB_NAME_PREFIX") or "tidings_"
    schemas = {family: (prefix + family,) for family in ("business", "network")}
    return Made(
        directory=directory,
        passwords=passwords,
        users={name: variables.get("WA_DB_USERNAME") or f"tidings_{name}" for name in _OF_DATABASE},
        schemas={**schemas, "migrate": tuple(schema for (schema,) in schemas.values())},
    )


def _parse(word: str) -> tuple[str, tuple[str, ...]]:
    name, _, hosts = word.partition("=")
    if name not in ROLES:
        raise Failure(f"{name!r} is none of {', '.join(ROLES)}")
    return name, tuple(host.strip() for host in hosts.split(",") if host.strip())


def _password(name: str, variables: Mapping[str, str]) -> str:
    try:
        return secret_sources.read(variables, _GIVEN[name]) if name in _GIVEN else ""
    except SecretUnavailable as error:
        raise Failure(str(error)) from None


def _random(name: str) -> str:
    return first_password.make() if name in _TYPED else secrets.token_hex(24)
