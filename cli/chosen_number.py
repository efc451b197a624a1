"""Number that a command acts on: the first one, or the one given with `--number`."""

from __future__ import annotations

import argparse

from cli import guard
from tidings.storage.business import numbers
from tidings.storage.database import Database


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--number` to a command."""
    parser.add_argument(
        "--number", type=_given, metavar="NUMBER", help="number to act on (default: TIDINGS_BUSINESS_NUMBER)"
    )


def _given(text: str) -> str:
    """Return the value of the option. Raises `ArgumentTypeError` for an empty one, as of an unset variable."""
    if not text:
        raise argparse.ArgumentTypeError("should not be empty; leave the option out for TIDINGS_BUSINESS_NUMBER")
    return text


async def find(database: Database, first: str, given: str | None) -> str:
    """Return the number to act on. Raises `CommandFailure` for one that the installation does not have.

    given: value of `--number`; None without it
    """
    number = given.removeprefix("+") if given is not None else first
    await require(database, first, number, removing=False)
    return number


async def require(database: Database, first: str, number: str, *, removing: bool) -> None:
    """Raise `CommandFailure` unless the installation has the number.

    removing: whether it counts while it is being removed
    """
    if number != first:
        async with database.reading() as connection:
            row = await numbers.find(connection, number)
        if row is None or (row.state == numbers.REMOVING and not removing):
            raise unknown(number)


def unknown(number: str) -> guard.CommandFailure:
    """Return the error about a number that the installation does not have."""
    return guard.CommandFailure(f"{number[:20]} is not a number of this installation: `tidings number list` lists them")


async def find_waba_owner(database: Database, first: str, given: str | None) -> str:
    """Return the number whose WABA the number to act on belongs to. Raises `CommandFailure` as `find` does."""
    number = await find(database, first, given)
    if number == first:
        return first
    async with database.reading() as connection:
        return await numbers.find_waba_owner(connection, number)
