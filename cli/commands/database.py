"""`tidings database`: prints or executes the SQL statements that create the schemas and users of an installation."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
from collections.abc import Mapping

from cli import database_sql
from cli.database_sql import ALL, DatabaseUser
from cli.guard import CommandFailure
from cli.settings import AdministratorSettings
from tidings.secrets import secret_sources
from tidings.secrets.secret_sources import SecretUnavailable
from tidings.storage import schema
from tidings.storage.schema import StatementRefused

PREFIX = "WA_DB_NAME_PREFIX"
# Variable with the password of each role's user.
PASSWORDS: Mapping[str, str] = {
    "business": "TIDINGS_BUSINESS_DB_PASSWORD",
    "network": "TIDINGS_NETWORK_DB_PASSWORD",
    "migrate": "TIDINGS_MIGRATE_DB_PASSWORD",
}
# Processes that connect as each role's user.
PROCESSES: Mapping[str, str] = {
    "business": "webapp and coreapp",
    "network": "network",
    "migrate": "tidings migrate",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions `sql` and `users`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    given = f"The passwords are those of {', '.join(PASSWORDS.values())} or of the files that these with _FILE name."
    sql = actions.add_parser(
        "sql",
        help="print CREATE DATABASE, CREATE USER and GRANT, with random passwords",
        epilog=f"{given} The others are random.",
    )
    users = actions.add_parser(
        "users",
        help="execute these statements as the administrator named by WA_DB_*, with the given passwords",
        epilog=f"{given} Existing users get these passwords. The command may be repeated.",
    )
    for action in (sql, users):
        action.add_argument("--host", default="%", help="host that the processes connect from (default %%: any)")
        action.add_argument(
            "--without-tls", action="store_true", help="leave out REQUIRE SSL, for a server on this machine"
        )


def run(options: argparse.Namespace) -> int:
    """Print the statements and, as comments, the variables for each process; or execute them."""
    prefix = os.environ.get(PREFIX) or "tidings_"
    passwords = _given(os.environ)
    if options.action == "users":
        if missing := [variable for role, variable in PASSWORDS.items() if not passwords[role]]:
            raise CommandFailure(f"{', '.join(missing)}: set the password of each user")
        return _make(_users(prefix, passwords), options)
    users = _users(prefix, {role: given or secrets.token_urlsafe(24) for role, given in passwords.items()})
    print(_statements(users, options, again=False), end="")
    for role, user in users.items():
        processes = PROCESSES[role]
        print(f"-- {processes}: WA_DB_ENGINE=MYSQL WA_DB_USERNAME={user.name} WA_DB_PASSWORD={user.password}")
    return 0


def _users(prefix: str, passwords: Mapping[str, str]) -> Mapping[str, DatabaseUser]:
    """Return the user of each role, with the privileges that its processes need.

    passwords: by role.
    """
    rights = {
        "business": ([f"{prefix}business"], database_sql.READ_AND_WRITE),
        "network": ([f"{prefix}network"], database_sql.READ_AND_WRITE),
        "migrate": ([f"{prefix}business", f"{prefix}network"], ALL),
    }
    return {
        role: DatabaseUser(name=f"{prefix}{role}", password=passwords[role], schemas=schemas, rights=granted)
        for role, (schemas, granted) in rights.items()
    }


def _given(variables: Mapping[str, str]) -> Mapping[str, str]:
    """Return the configured passwords by role; an empty text where none is set. Raises `CommandFailure`."""
    try:
        return {role: secret_sources.read(variables, variable) for role, variable in PASSWORDS.items()}
    except SecretUnavailable as error:
        raise CommandFailure(str(error)) from None


def _statements(users: Mapping[str, DatabaseUser], options: argparse.Namespace, *, again: bool) -> str:
    try:
        return database_sql.statements(
            list(users.values()), host=options.host, tls=not options.without_tls, again=again
        )
    except ValueError as error:
        raise CommandFailure(str(error)) from None


def _make(users: Mapping[str, DatabaseUser], options: argparse.Namespace) -> int:
    settings = AdministratorSettings.read(os.environ)
    if settings.server.engine != "mysql":
        raise CommandFailure("WA_DB_ENGINE=MYSQL and WA_DB_HOSTNAME name no server: SQLite has no users")
    statements = _statements(users, options, again=True)
    try:
        asyncio.run(schema.execute(settings.server, statements.splitlines()))
    except StatementRefused as error:
        raise CommandFailure(f"the server refuses to create schemas and users: {error}") from None
    print(f"users {', '.join(sorted(user.name for user in users.values()))} have their schemas and rights")
    return 0
