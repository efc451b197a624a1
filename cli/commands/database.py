"""`tidings database sql`: prints the statements that an administrator executes once on a database server."""

from __future__ import annotations

import argparse
import os
import secrets

from cli import database_sql
from cli.database_sql import ALL, User

PREFIX = "WA_DB_NAME_PREFIX"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and its options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    sql = actions.add_parser("sql", help="print CREATE DATABASE, CREATE USER and GRANT, with random passwords")
    sql.add_argument("--host", default="%", help="host that the processes connect from (default %%: any)")
    sql.add_argument("--without-tls", action="store_true", help="leave out REQUIRE SSL, for a server on this machine")


def run(options: argparse.Namespace) -> int:
    """Print the statements, followed by the variables of each process as SQL comments."""
    prefix = os.environ.get(PREFIX) or "tidings_"
    business, network, migrate = (
        User(name=f"{prefix}{role}", password=secrets.token_urlsafe(24), schemas=schemas, rights=rights)
        for role, schemas, rights in (
            ("business", [f"{prefix}business"], database_sql.READ_AND_WRITE),
            ("network", [f"{prefix}network"], database_sql.READ_AND_WRITE),
            ("migrate", [f"{prefix}business", f"{prefix}network"], ALL),
        )
    )
    users = {"webapp and coreapp": business, "network": network, "tidings migrate": migrate}
    print(database_sql.statements(list(users.values()), host=options.host, tls=not options.without_tls), end="")
    for processes, user in users.items():
        print(f"-- {processes}: WA_DB_ENGINE=MYSQL WA_DB_USERNAME={user.name} WA_DB_PASSWORD={user.password}")
    return 0
