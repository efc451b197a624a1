"""Logging: one line per event, as `key=value` text or JSON."""

from __future__ import annotations

import datetime
import json
import logging
import os
import sys
from collections.abc import Callable

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
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception as error:
            # A value that cannot be formatted is a defect of the caller, and no reason to end.
            line = f"{record.levelname} {record.name} {record.msg!r} cannot be formatted: {type(error).__name__}"
        lost, self._lost = self._lost, 0
        if lost:
            notice = logging.makeLogRecord(
                {
                    "name": __name__,
                    "msg": "log.lines_lost",
                    "levelno": logging.WARNING,
                    "levelname": "WARNING",
                    "lines": lost,
                }
            )
            line = f"{self.format(notice)}\n{line}"
        try:
            self._write(line)
        except (OSError, ValueError):
            # `ValueError`: the stream is closed.
            self._lost = lost + 1


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
    """Send all log records to `write`, by default standard error, line by line. style: `text` or `json`."""
    handler = LineHandler(write)
    handler.setFormatter(JSONFormatter(process) if style == "json" else TextFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("aiosqlite", "alembic", "asyncio", "httpx", "httpcore", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # It warns of each failed attempt to reach the receiver, and reports at the end what was lost.
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)
    # It warns of each malformed form, for which the client gets an error anyway.
    logging.getLogger("python_multipart").setLevel(logging.ERROR)
