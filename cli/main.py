"""`tidings COMMAND`: imports and runs the command's module, without importing the other commands."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import tidings
from cli import first_settings, guard
from cli.settings import StoredSettings

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read(path: Path) -> dict[str, str]:
    """Return the variables of a file with lines of NAME=VALUE.

    Values are quoted as in a shell, and lines that start with `#` or `;` are comments. A leading `-` in the path
    allows the file to be absent, as in a systemd unit. Raises `CommandFailure`.
    """
    optional = str(path).startswith("-")
    path = Path(str(path)[1:]) if optional else path
    try:
        text = path.read_text()
    except FileNotFoundError:
        if optional:
            return {}
        raise guard.CommandFailure(f"--env-file {path}: No such file or directory") from None
    except (OSError, UnicodeDecodeError) as error:
        raise guard.CommandFailure(f"--env-file {path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from None
    return dict(
        _variable(line, f"--env-file {path}, line {number}")
        for number, line in enumerate(text.replace("\\\n", "").splitlines(), 1)
        if line.strip() and line.strip()[0] not in "#;"
    )


def _variable(line: str, where: str) -> tuple[str, str]:
    name, separator, raw = line.strip().partition("=")
    if not separator or not _NAME.fullmatch(name):
        raise guard.CommandFailure(f"{where}: not NAME=VALUE")
    value = raw.strip()
    if value[:1] in ("'", '"'):
        try:
            words = shlex.split(value)
        except ValueError:
            raise guard.CommandFailure(f"{where}: {name} has no closing quotation mark") from None
        value = " ".join(words)
    return name, value


COMMANDS = {
    "up": "start everything on this machine and stay until Ctrl-C",
    "demo": "start a temporary system, send one message through it and show each step",
    "handset": "run a handset: read messages and type replies in this terminal",
    "webapp": "run the REST API for businesses",
    "coreapp": "run the worker that queues, encrypts and sends",
    "network": "run the message network to which recipients connect",
    "robots": "run the simulated recipients",
    "listen": "run a webhook receiver that prints callbacks",
    "number": "add, list, pause and remove the numbers of an installation",
    "template": "create, edit, list, review and delete message templates",
    "callbacks": "list dead letters, or replay them",
    "queue": "inspect the queues; replay or delete callbacks by time, status and recipient",
    "top": "show rates, queues, latencies and processes of an installation, live",
    "traffic": "record the shape of requests, replay it, or send a share of them to another installation",
    "doctor": "check an installation and suggest remedies",
    "token": "create a key for clients of 360dialog's API",
    "move": "show what becomes of the configuration of an On-Premises installation",
    "webhook-secret": "show the secrets that sign callbacks, or rotate them",
    "keys": "show the keys that encrypt the database, or rotate them",
    "files": "compare file stores with the database, or record another store",
    "database": "print or execute the SQL that creates schemas and users on MySQL or MariaDB",
    "migrate": "migrate the tables to this version",
    "provision": "create secrets and certificates for an installation in containers",
    "certificates": "create certificates for an installation on several machines",
    "version": "print the version",
}


# Commands for an installation that has been started before.
_OF_AN_INSTALLATION = frozenset(
    {"callbacks", "files", "keys", "number", "queue", "template", "token", "webhook-secret"}
)


def _require_installation(variables: Mapping[str, str]) -> None:
    """Raise `CommandFailure` without the data directory of SQLite files, which the command would create."""
    if StoredSettings.mistakes(variables):
        # The command reports them with those of its other settings.
        return
    found = StoredSettings.read(variables)
    if found.is_missing:
        raise guard.CommandFailure(f"data directory {found.data_dir}: No such file or directory{guard.ELSEWHERE}")


class Command(Protocol):
    """Functions of a module in `cli.commands`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, options: argparse.Namespace) -> int: ...


def _load(name: str) -> Command:
    """Import the module of a command.

    Modules leave hardly any garbage, so the interpreter's GC would only pass over all of them, again and again, during
    the import and after it. That took a sixth of the CPU time of a start.
    """
    gc.disable()
    try:
        return cast(Command, importlib.import_module(f"cli.commands.{name.replace('-', '_')}"))
    finally:
        gc.freeze()
        gc.enable()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit status: 0 done, 1 failed, 2 wrong usage or settings, 130 interrupted."""
    # Files that are created without an explicit mode, such as a library's temporary files, are private too.
    os.umask(0o077)
    words = list(sys.argv[1:] if arguments is None else arguments)
    listing = "\n".join(f"  {name:<14} {line}" for name, line in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="tidings",
        usage="tidings [--help] [--version] [--env-file FILE]... COMMAND ...",
        description="A self-hosted business messaging server.",
        epilog=f"commands:\n{listing}\n\n`tidings COMMAND --help` describes a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tidings {tidings.__version__}")
    parser.add_argument(
        "--env-file",
        action="append",
        default=[],
        metavar="FILE",
        help="read environment variables from a file, as a systemd unit does; may be repeated; the last value wins",
    )
    parser.add_argument("command", choices=list(COMMANDS), metavar="COMMAND", help="one of the commands below")
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    with guard.one_line("tidings") as outcome:
        if not words:
            parser.print_help()
            return 2
        given = parser.parse_args(words)
    if outcome.status:
        return outcome.status
    name, words = given.command, given.words
    with guard.one_line(f"tidings {name}") as outcome:
        for path in given.env_file:
            os.environ.update(read(Path(path)))
        command = _load(name)
        own = argparse.ArgumentParser(prog=f"tidings {name}", description=COMMANDS[name])
        if settings := first_settings.describe(name):
            own.epilog, own.formatter_class = settings, argparse.RawDescriptionHelpFormatter
        command.add_arguments(own)
        options = own.parse_args(words)
        if name in _OF_AN_INSTALLATION:
            _require_installation(os.environ)
        outcome.status = command.run(options)
    return outcome.status


if __name__ == "__main__":
    sys.exit(main())
