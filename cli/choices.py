"""Command-line options that select rows of the queues."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from cli import guard
from cli.counts import counted
from tidings.storage.business.queue_views import CALLBACK_STATUSES, JOB_STATUSES, QUARANTINE_STATUSES, RowFilter
from tidings.wire import addresses

_AGO = re.compile(r"([0-9]{1,6})([smhd])")
_OWN_EVENT = re.compile(r"evt_[0-9a-f]{32}")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def word(text: str) -> str:
    """Return the text of an option that selects rows. Raises `ArgumentTypeError` for an empty one, as of an unset
    variable: it would select all rows.
    """
    if not text:
        raise argparse.ArgumentTypeError("should not be empty; leave the option out to select all")
    return text


def recipient(text: str) -> str:
    """Return the address that an option names, without `+`. Raises `ArgumentTypeError`, also for an empty text."""
    address = text.removeprefix("+")
    if not addresses.is_wa_id(address) and not addresses.is_group(address):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a group's id")
    return address


def count(text: str) -> int:
    """Return the whole number, from 0, that an option names. Raises `ArgumentTypeError`."""
    if not addresses.is_digits(text, 1, 9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 999999999")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that select rows."""
    statuses = (*CALLBACK_STATUSES, *JOB_STATUSES, *QUARANTINE_STATUSES)
    parser.add_argument(
        "--status",
        action="append",
        choices=statuses,
        default=[],
        help=f"of callbacks: {', '.join(CALLBACK_STATUSES)}; of jobs: {', '.join(JOB_STATUSES)}; of the quarantine: "
        f"{', '.join(QUARANTINE_STATUSES)}; several times for any",
    )
    parser.add_argument("--since", type=word, metavar="TIME", help="2026-01-31T10:00:00Z, or 90m, 2h, 3d ago")
    parser.add_argument(
        "--until", type=word, metavar="TIME", help="like --since; rows of exactly that time are excluded"
    )
    parser.add_argument("--recipient", type=recipient, metavar="NUMBER", help="digits, or a group's id")
    parser.add_argument("--number", type=word, metavar="NUMBER", help="of this number of the business only")
    parser.add_argument("--shard", type=count, metavar="N", help="of this shard only")
    parser.add_argument(
        "--kind",
        type=word,
        metavar="KIND",
        help="of callbacks: status_change, inbound_message …; of the quarantine: job, delivery, callback",
    )
    parser.add_argument(
        "--id", action="append", metavar="ID", default=[], help="of an item in quarantine; several times for any"
    )
    parser.add_argument("--event", action="append", metavar="EVENT", default=[], help="an event id; may be repeated")


def read(options: argparse.Namespace, *, of: Sequence[str], default: Sequence[str]) -> RowFilter:
    """Return the selection that the options describe. Raises `CommandFailure` for an invalid option.

    of: statuses of this kind of row.
    default: statuses to select without `--status`.
    """
    foreign = [status for status in options.status if status not in of]
    if foreign:
        raise guard.CommandFailure(f"--status {foreign[0]} is none of {', '.join(of)}")
    is_quarantine = set(of) <= set(QUARANTINE_STATUSES)
    if options.id and not is_quarantine:
        raise guard.CommandFailure("--id applies to the quarantine only")
    if is_quarantine and (options.event or options.shard is not None):
        raise guard.CommandFailure("--event and --shard do not apply to the quarantine")
    now = time.time()
    return RowFilter(
        statuses=tuple(dict.fromkeys(options.status or default)),
        since=parse_time(options.since, "--since", now),
        until=parse_time(options.until, "--until", now),
        recipient=options.recipient or "",
        shard=options.shard,
        number=(options.number or "").lstrip("+"),
        kind=options.kind or "",
        seqs=tuple(parse_seq(event) for event in options.event if not is_own(event)),
        events=tuple(event for event in options.event if is_own(event)),
        ids=tuple(options.id),
    )


def refuse(options: argparse.Namespace, but: Sequence[str] = ()) -> None:
    """Raise `CommandFailure` if an option selects rows.

    but: names of options that may be given
    """
    names = ("status", "since", "until", "recipient", "number", "shard", "kind", "id", "event")
    given = [name for name in names if name not in but and getattr(options, name) not in (None, [])]
    if given:
        raise guard.CommandFailure(f"--{given[0]} does not apply to {options.action}")


def is_own(event: str) -> bool:
    """Return whether the event id has the form of those stored with their callback, as callbacks of statuses are."""
    return _OWN_EVENT.fullmatch(event) is not None


def parse_seq(event: str) -> int:
    """Return the `seq` from which an event id was derived. Raises `CommandFailure`."""
    try:
        seq = int(event.removeprefix("evt_"), 16)
    except ValueError:
        seq = -1
    if not 0 <= seq < 2**63:
        raise guard.CommandFailure(f"{event!r} is not an event id")
    return seq


def parse_time(text: str | None, option: str, now: float) -> int:
    """Return a point in time in Unix milliseconds, 0 for none. Raises `CommandFailure`.

    text: ISO 8601 time (UTC without an offset), or an age such as 90m or 2h; None for none.
    option: name of the option, for the error text.
    now: Unix seconds.
    """
    if not text:
        return 0
    if ago := _AGO.fullmatch(text):
        # From 1, because 0 is no time.
        return max(1, int((now - int(ago[1]) * _SECONDS[ago[2]]) * 1000))
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise guard.CommandFailure(
            f"{option} {text!r} is neither a time like 2026-01-31T10:00:00Z nor an age like 2h"
        ) from None
    return max(1, int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000))


def describe(choice: RowFilter) -> str:
    """Return the selection as one line, for the console and the audit log."""
    words = [f"{'/'.join(choice.statuses)}"] if choice.statuses else []
    if choice.since:
        words.append(f"since {utc(choice.since)}")
    if choice.until:
        words.append(f"until {utc(choice.until)}")
    if choice.recipient:
        words.append(f"recipient {choice.recipient}")
    if choice.shard is not None:
        words.append(f"shard {choice.shard}")
    if choice.number:
        words.append(f"number {choice.number}")
    if choice.kind:
        words.append(f"kind {choice.kind}")
    if choice.seqs or choice.events:
        words.append(counted(len(choice.seqs) + len(choice.events), "event"))
    if choice.ids:
        words.append(counted(len(choice.ids), "id"))
    return ", ".join(words)


def utc(milliseconds: int) -> str:
    """Return a time in Unix milliseconds as ISO 8601 text in UTC."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
