"""Logging: one line for each event, `key=value` for people or JSON for machines."""

from __future__ import annotations

import datetime
import json
import logging
import sys

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _plain(value: object) -> str:
    # What came from outside must not be able to start a line of its own.
    text = str(value)
    return text if text.isprintable() else repr(text)


class TextFormatter(logging.Formatter):
    """`12:00:00.123 INFO coreapp.jobs message.sent id=… took_ms=3`"""

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
    """One JSON object a line."""

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
            **_fields(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def configure(process: str, *, level: str = "INFO", style: str = "text") -> None:
    """Send every logger to standard error. `style` is `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter(process) if style == "json" else TextFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for chatty in ("aiosqlite", "alembic", "asyncio", "httpx", "httpcore", "websockets", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
