"""Logging: one line per event, as `key=value` text or JSON."""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Counter

# Seconds of one period, and lines per period about one event and error.
PERIOD = 60.0
LINES = 10
# Different errors per event that are counted separately in a period; further ones count as one.
ERRORS = 8
# Different events that are counted separately in a period; further ones count as one.
EVENTS = 500
# Name under which further events and errors are counted.
OTHER = "(other)"
# Length of the part of an error's text that distinguishes it, characters.
_LENGTH = 80
# Ids and long numbers, which differ between two lines about one error.
_VARIABLE = re.compile(r"[0-9a-fA-F]{8}[0-9a-fA-F-]*|\d{5,}")


@dataclasses.dataclass(frozen=True, slots=True)
class SuppressedLines:
    """Lines about one event and error that were not written in a period."""

    event: str
    error: str
    lines: int


class RepeatLimit:
    """Counts lines by event and error. Records below WARNING are not limited."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """Create the limit.

        now: returns seconds
        """
        self._now = now
        self._ends = 0.0
        # Lines of this period by event and error.
        self._lines: dict[str, dict[str, int]] = {}

    def admit(self, record: logging.LogRecord) -> bool:
        """Count a record. Returns whether it may be written. `due` must be called before, so that the period is the
        present one.
        """
        if record.levelno < logging.WARNING:
            return True
        event = str(record.msg)
        if event not in self._lines and len(self._lines) >= EVENTS:
            event = OTHER
        errors = self._lines.setdefault(event, {})
        error = _error_of(record)
        if error not in errors and len(errors) >= ERRORS:
            error = OTHER
        errors[error] = errors.get(error, 0) + 1
        return errors[error] <= LINES

    @property
    def is_suppressing(self) -> bool:
        """Return whether lines of this period were suppressed."""
        return any(count > LINES for errors in self._lines.values() for count in errors.values())

    def due(self) -> Sequence[SuppressedLines]:
        """Begin a new period if the last one is over. Returns what was suppressed in the last one."""
        now = self._now()
        if now < self._ends:
            return ()
        self._ends = now + PERIOD
        return self.take()

    def take(self) -> Sequence[SuppressedLines]:
        """Return what was suppressed in this period, and count from zero."""
        lines, self._lines = self._lines, {}
        return [
            SuppressedLines(event, error, count - LINES)
            for event, errors in lines.items()
            for error, count in errors.items()
            if count > LINES
        ]


def _error_of(record: logging.LogRecord) -> str:
    """Return what distinguishes a record's error: the exception's type, or the text in `error` without numbers."""
    if record.exc_info and record.exc_info[0] is not None:
        return record.exc_info[0].__name__
    try:
        text = str(record.__dict__.get("error", ""))
    except Exception:
        # The formatter reports a value that cannot be shown.
        return OTHER
    return _VARIABLE.sub("#", text[: 2 * _LENGTH])[:_LENGTH]


SUPPRESSED = Counter("tidings_log_lines_suppressed_total", "Warnings and errors that the log left out as repetitions")

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _plain(value: object) -> str:
    # Values from outside must not be able to start a new line.
    text = str(value)
    return text if text.isprintable() else repr(text)


class TextFormatter(logging.Formatter):
    """Formatter for `12:00:00.123 INFO coreapp.jobs message.sent id=… took_ms=3`."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        parts = [when, record.levelname.ljust(7), self._process.ljust(8), record.name, _plain(record.getMessage())]
        parts += [f"{key}={_plain(value)}" for key, value in _fields(record).items()]
        line = " ".join(parts)
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JSONFormatter(logging.Formatter):
    """Formatter for one JSON object per line."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "event": record.getMessage(),
        }
        # Extra fields do not overwrite the standard ones.
        entry |= {f"field_{key}" if key in entry else key: value for key, value in _fields(record).items()}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class LineHandler(logging.Handler):
    """Handler that passes each line to `write` and never raises.

    Lines that `write` refuses with `OSError` are counted, and the next line that is written carries their number.
    Repeated warnings and errors are counted instead of written, and reported once per period.
    """

    def __init__(self, write: Callable[[str], None], repeats: RepeatLimit | None = None) -> None:
        """Create the handler.

        repeats: limit on repeated warnings and errors; None to write all of them
        """
        super().__init__()
        self._write = write
        self._repeats = repeats
        self._lost = 0
        # Reports at the end of a period what was suppressed in it.
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self._repeats is not None:
            self._report(self._repeats.due())
            if not self._repeats.admit(record):
                SUPPRESSED.inc()
                self._report_later()
                return
        self._put(record)

    def close(self) -> None:
        """Report what was suppressed last."""
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
            if self._repeats is not None:
                self._report(self._repeats.take())
        finally:
            self.release()
        super().close()

    def _report(self, suppressed: Iterable[SuppressedLines]) -> None:
        for entry in suppressed:
            self._put(
                _notice("log.lines_suppressed", suppressed=entry.event, lines=entry.lines, **_error_field(entry.error))
            )

    def _report_later(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(PERIOD, self._report_now)
            self._timer.daemon = True
            self._timer.start()

    def _report_now(self) -> None:
        """Report what was suppressed, also when no further record comes. Runs in the timer's thread."""
        self.acquire()
        try:
            self._timer = None
            if self._repeats is not None:
                self._report(self._repeats.due())
                if self._repeats.is_suppressing:
                    self._report_later()
        finally:
            self.release()

    def _put(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:
            # A value that cannot be formatted is a defect of the caller, and no reason to end.
            line = f"{record.levelname} {record.name} {record.msg!r} cannot be formatted: {type(error).__name__}"
        lost, self._lost = self._lost, 0
        if lost:
            line = f"{self.format(_notice('log.lines_lost', lines=lost))}\n{line}"
        try:
            self._write(line)
        except (OSError, ValueError):
            # `ValueError`: the stream is closed.
            self._lost = lost + 1


def _notice(event: str, **fields: object) -> logging.LogRecord:
    """Return a warning of the log itself."""
    return logging.makeLogRecord(
        {"name": __name__, "msg": event, "levelno": logging.WARNING, "levelname": "WARNING", **fields}
    )


def _error_field(error: str) -> dict[str, str]:
    return {"error": error} if error else {}


def _write_to_standard_error(line: str) -> None:
    stream = sys.__stderr__
    if stream is None or sys.stderr is not stream:
        print(line, file=sys.stderr, flush=True)  # noqa: T201
        return
    # Bypasses the stream's buffer, which would keep a line that the device refuses and write it again.
    left = memoryview(f"{line}\n".encode(errors="backslashreplace"))
    descriptor = stream.fileno()
    while left:
        left = left[os.write(descriptor, left) :]


def configure(
    process: str, *, level: str = "INFO", style: str = "text", write: Callable[[str], None] = _write_to_standard_error
) -> None:
    """Send all log records to `write`, by default standard error, line by line.

    level: least level that is written; with `DEBUG`, repetitions are written too
    style: `text` or `json`
    """
    handler = LineHandler(write, None if level.upper() == "DEBUG" else RepeatLimit())
    handler.setFormatter(JSONFormatter(process) if style == "json" else TextFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("aiosqlite", "alembic", "asyncio", "httpx", "httpcore", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # It warns of each failed attempt to reach the receiver, and reports at the end what was lost.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    # It warns of each malformed form, for which the client gets an error anyway.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
