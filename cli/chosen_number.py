"""Number that a command acts on: the first one, or the one given with `--number`."""

from __future__ import annotations

import argparse

from cli import guard
from tidings.storage.business import numbers
from tidings.storage.database import Database


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--number` to a command."""
    parser.add_argument("--number", metavar="NUMBER", help="number to act on (default: TIDINGS_BUSINESS_NUMBER)")


async def find(database: Database, first: str, given: str | None) -> str:
    """Return the number to act on. Raises `CommandFailure` for one that the installation does not have.

    given: value of `--number`; None without it
    """
    number = given.removeprefix("+") if given is not None else first
    if number != first:
        async with database.reading() as connection:
            row = await numbers.find(connection, number)
        if row is None or row.state == numbers.REMOVING:
            raise _unknown(number)
    return number


async def require_known(database: Database, first: str, number: str) -> None:
    """Raise `CommandFailure` unless the installation has the number, or still removes it."""
    if number != first:
        async with database.reading() as connection:
            row = await numbers.find(connection, number)
        if row is None:
            raise _unknown(number)


def _unknown(number: str) -> guard.CommandFailure:
    return guard.CommandFailure(f"{number[:20]} is not a number of this installation: `tidings number list` lists them")


async def find_waba_owner(database: Database, first: str, given: str | None) -> str:
    """Return the number whose WABA the number to act on belongs to. Raises `CommandFailure` as `find` does."""
    number = await find(database, first, given)
    if number == first:
        return first
    async with database.reading() as connection:
        return await numbers.find_waba_owner(connection, number)
