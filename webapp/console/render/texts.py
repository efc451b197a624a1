"""Values as text: times, durations, numbers, sizes."""

from __future__ import annotations

import datetime

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


def utc(milliseconds: int) -> str:
    """Return a time in UTC, such as `2026-11-26 12:00:05`. milliseconds: Unix milliseconds."""
    return _moment(milliseconds).strftime("%Y-%m-%d %H:%M:%S")


def iso(milliseconds: int) -> str:
    """Return a time for `<time datetime>`. milliseconds: Unix milliseconds."""
    return _moment(milliseconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(min(max(milliseconds, 0) / 1000, 253_402_300_799), datetime.UTC)


def parse_utc(value: str) -> int | None:
    """Return the Unix milliseconds of a time in UTC as the field of a form has it; `None` for another text."""
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return max(0, int(moment.timestamp() * 1000))


def duration(seconds: float | None) -> str:
    """Return a duration in one unit, such as `340 ms`, `12 s`, `5 min`, `3 h` or `9 d`; a dash for `None`."""
    if seconds is None:
        return "–"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for length, unit in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def count(value: float | None) -> str:
    """Return a number with separators of thousands; a dash for `None`."""
    return "–" if value is None else f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return a rate per second; a dash for `None`."""
    if value is None:
        return "–"
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def as_key(value: str) -> str:
    """Return a text for a search among keys, which are ASCII: other characters become `?`, which no key has."""
    return value.encode("ascii", "replace").decode("ascii")
