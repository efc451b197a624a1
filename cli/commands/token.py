"""`tidings token`: creates keys of 360dialog's dialect, which are tokens of a user that last for years."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Annotated

from cli import chosen_number, guard
from cli.settings import NumberSettings
from tidings.aio.clock import SystemClock
from tidings.config import env
from tidings.secrets import first_password, process_secrets
from tidings.secrets.process_secrets import WebappSecrets
from tidings.storage.business import numbers, users
from tidings.storage.database import Database
from webapp.auth.tokens import Tokens

DAY = 24 * 3600  # seconds
MAX_DAYS = 3_650


class TokenSettings(NumberSettings):
    """Databases, business number and the secrets of a Webapp."""

    secrets: Annotated[WebappSecrets, process_secrets.secrets_of(WebappSecrets)] = env.COMPUTED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="print a new token of a user, shown only now")
    create.add_argument("--d360", action="store_true", required=True, help="to be sent as D360-API-KEY")
    create.add_argument(
        "--user", metavar="NAME", default=first_password.ADMINISTRATOR, help="user within the number (default: admin)"
    )
    create.add_argument("--days", type=int, default=MAX_DAYS, metavar="N", help="days until it expires (default: 3650)")
    chosen_number.add_option(create)


def run(options: argparse.Namespace) -> int:
    """Print a token. It ends with `POST /v1/users/logout`, a new password of the user, or after its days."""
    if not 1 <= options.days <= MAX_DAYS:
        raise guard.CommandFailure(f"--days is not a number from 1 to {MAX_DAYS}")
    print(asyncio.run(_create(TokenSettings.read(os.environ), options)))
    return 0


async def _create(settings: TokenSettings, options: argparse.Namespace) -> str:
    database = Database(settings.business, "business")
    try:
        account = await chosen_number.find(database, settings.account, options.number)
        async with database.reading() as connection:
            row = await numbers.find(connection, account)
            name = users.login_name(row, options.user) if row is not None else options.user
            user = await users.find_user(connection, name)
        if user is None or user.account != account:
            raise guard.CommandFailure(f"{account} has no user {options.user[:64]}")
        if user.must_change_password:
            raise guard.CommandFailure(f"{options.user} has the first password: log in with new_password first")
        token, _ = Tokens(database, settings.secrets.jwt_key, SystemClock()).issue(user, options.days * DAY)
        return token
    finally:
        await database.close()
