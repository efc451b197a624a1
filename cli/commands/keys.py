"""`tidings keys`: shows the keys that the database is sealed under, and rotates them while the installation runs."""

from __future__ import annotations

import argparse
import asyncio
import os

from cli import guard
from cli.counts import counted
from cli.settings import CoreappSettings
from tidings.aio import crashpoints
from tidings.e2ee.errors import CorruptState
from tidings.keys.rotation import CannotRotate, KeyState, Rotation
from tidings.secrets import operator_key
from tidings.secrets.secret_files import SecretFiles
from tidings.storage.business import key_checks
from tidings.storage.database import Database


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the action and the kind of key."""
    parser.add_argument(
        "action",
        choices=("status", "rotate", "drop", "console"),
        help="show the ids of the keys, encrypt everything with a new key, drop the old key, or print the key for "
        "TIDINGS_CONSOLE_KEY of Webapps, with which the console purges callbacks and shows messages",
    )
    kinds = (key_checks.MASTER, key_checks.SETTINGS)
    parser.add_argument("kind", nargs="?", choices=kinds, help="the key (default: both)")


def run(options: argparse.Namespace) -> int:
    """Read or change the database while the installation runs.

    Only ids of keys are printed, and for the console the operator key that is derived from the master key.
    """
    crashpoints.arm(os.environ.get("TIDINGS_CRASH_AT"))
    found = CoreappSettings.read(os.environ)
    if options.action == "console":
        _print_line(operator_key.derive(found.secrets.master_key.keys[0]))
        return 0
    return asyncio.run(_run(options, found))


async def _run(options: argparse.Namespace, found: CoreappSettings) -> int:
    keys = {key_checks.MASTER: found.secrets.master_key, key_checks.SETTINGS: found.secrets.settings_key}
    database, files = Database(found.business, "business"), SecretFiles(found.data_dir)
    try:
        for name in (options.kind,) if options.kind else tuple(keys):
            await _act(options.action, Rotation(name, database, files, keys=keys[name], print_line=_print_line))
    except (CannotRotate, CorruptState) as error:
        raise guard.CommandFailure(str(error)) from None
    finally:
        await database.close()
    return 0


async def _act(action: str, rotation: Rotation) -> None:
    if action == "rotate":
        await rotation.rotate()
    elif action == "drop":
        await rotation.drop()
    _print_line(_describe(await rotation.state()))


def _describe(state: KeyState) -> str:
    check = state.check
    known = f"current {check.key_id}" if check is not None else "none in use yet"
    if check is not None and check.previous:
        known += f", {check.previous} until it is dropped"
    left = counted(state.left, "row")
    return f"{state.name} key: {known}; {left} under another; here: {' '.join(state.ids)} ({state.source})"


def _print_line(line: str) -> None:
    print(line, flush=True)
