"""Conversion of a command's errors into one line on standard error and an exit status."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import select
import sys
from collections.abc import Iterator

from tidings.aio import service
from tidings.config.env import SettingsError
from tidings.storage import outages, revisions

FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130
READER_LEFT = 141  # as of a program that SIGPIPE ends
ELSEWHERE = "; run the command where `tidings up` runs, or set TIDINGS_DATA_DIR to the directory of the installation"
UNWRITABLE = "; check that this user can write in TIDINGS_DATA_DIR and that its disk is not read-only"
# Texts of SQLite, which names no file.
_UNWRITABLE = ("unable to open database file", "readonly database")
_FULL = "database or disk is full"
FREE_SPACE = "; free space on the disk of TIDINGS_DATA_DIR, then run the command again"

_OURS = ("tidings", "webapp", "coreapp", "network", "handset")


class CommandFailure(Exception):
    """The command cannot continue; `str()` is the line to print for the user."""


@dataclasses.dataclass(slots=True)
class ExitStatus:
    """Exit status of a command."""

    status: int = 0


def explain(error: BaseException) -> tuple[int, str] | None:
    """Return the exit status and one line for an error that a user can act on; None for a defect in Tidings."""
    for cause in _causes(error):
        if isinstance(cause, KeyboardInterrupt):
            return INTERRUPTED, "interrupted"
        if isinstance(cause, SettingsError | revisions.WrongRevision):
            return WRONG_USE, str(cause)
        if isinstance(cause, CommandFailure):
            return FAILED, str(cause)
        if _is_ours(cause) and isinstance(cause.__cause__, OSError) and not isinstance(cause, service.ServiceFailed):
            # More specific than the system's error: names the variable with the address.
            return FAILED, str(cause)
        outage = outages.describe(cause)
        if outage:
            return FAILED, outage + _remedy(outage)
        if isinstance(cause, OSError):
            line = _explain_os_error(cause)
            if line:
                return FAILED, line
    # Tidings' own errors are worded for users; any other error is a defect.
    return (FAILED, str(error)) if _is_ours(error) else None


def _remedy(outage: str) -> str:
    """Return what to do about a database without tables, or a SQLite file that cannot be written or is on a full disk;
    empty otherwise.
    """
    if "no such table" in outage or "(1146," in outage:
        return ELSEWHERE
    if _FULL in outage:
        return FREE_SPACE
    return UNWRITABLE if any(text in outage for text in _UNWRITABLE) else ""


def _is_ours(error: BaseException) -> bool:
    """Return whether the error's class is defined by Tidings, so that its text is meant for users."""
    return type(error).__module__.partition(".")[0] in _OURS


@contextlib.contextmanager
def one_line(who: str) -> Iterator[ExitStatus]:
    """Report any error of the block as one line on standard error, and store the exit status in the outcome.

    With `TIDINGS_LOG_LEVEL=debug` the error is raised instead, with its traceback.
    """
    outcome = ExitStatus()
    try:
        try:
            yield outcome
        except SystemExit:
            # Of `--help`.
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        is_unread = isinstance(error, BrokenPipeError) and _has_no_reader()
        _drop_unwritable()
        if is_unread:
            outcome.status = READER_LEFT
            return
        if os.environ.get("TIDINGS_LOG_LEVEL", "").lower() == "debug":
            raise
        outcome.status, line = explain(error) or (
            FAILED,
            f"{type(error).__name__}: {error} (TIDINGS_LOG_LEVEL=debug shows where)",
        )
        # If standard error is closed, the exit status alone reports the error.
        with contextlib.suppress(OSError):
            print(f"{who}: {' '.join(line.split())}", file=sys.stderr, flush=True)


def _has_no_reader() -> bool:
    """Return whether standard output is a pipe whose reader has ended, as of `| head`."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_unwritable() -> None:
    """Drop buffered output that cannot be written, which the interpreter would report with a traceback at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, the errors that it contains and those that it was raised from, outermost first."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions
        if isinstance(current, service.ServiceFailed):
            waiting.append(current.cause)
        waiting.append(current.__cause__)


_OF_THE_SYSTEM = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.ENOTDIR, errno.EADDRNOTAVAIL)
_OF_A_FILE = (errno.ENOENT, errno.EISDIR, errno.EEXIST)


def _explain_os_error(error: OSError) -> str | None:
    if error.errno == errno.EADDRINUSE:
        # asyncio gives the address only in the text.
        found = re.search(r"\('([^']+)', (\d+)", str(error))
        where = f"{found[1]}:{found[2]}" if found else "an address it needs"
        return f"{where} is in use: is Tidings or another program already running there?"
    if error.errno in _OF_THE_SYSTEM or (error.errno in _OF_A_FILE and error.filename):
        remedy = "; free space on its disk, then run the command again" if error.errno == errno.ENOSPC else ""
        return f"{error.filename or 'a file that the command writes'}: {error.strerror}{remedy}"
    if isinstance(error, ConnectionError):
        return f"no process responds: {error}"
    return None
