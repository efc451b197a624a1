"""One event is one line that machines and people can read."""

from __future__ import annotations

import errno
import json
import logging
import subprocess
import sys

import pytest

from tidings.observability import log


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("coreapp.jobs", logging.INFO, __file__, 1, "message.sent", None, None)
    made.__dict__.update(fields)
    return made


def test_fields_follow_the_event_as_key_and_value() -> None:
    line = log.TextFormatter("coreapp").format(record(id="abc", took_ms=3))
    assert line.endswith("INFO    coreapp  coreapp.jobs message.sent id=abc took_ms=3")
    assert "\n" not in line


def test_the_json_style_is_one_object_with_the_fields_in_it() -> None:
    entry = json.loads(log.JSONFormatter("coreapp").format(record(id="abc", took_ms=3)))
    assert (entry["event"], entry["process"], entry["id"], entry["took_ms"]) == ("message.sent", "coreapp", "abc", 3)
    assert entry["level"] == "info"


def test_a_field_with_the_name_of_one_that_every_line_has_is_kept_beside_it() -> None:
    entry = json.loads(log.JSONFormatter("coreapp").format(record(event="mine", level=7)))
    assert (entry["event"], entry["field_event"], entry["level"], entry["field_level"]) == (
        "message.sent",
        "mine",
        "info",
        7,
    )


def test_a_value_with_a_line_break_cannot_forge_a_second_line() -> None:
    line = log.TextFormatter("webapp").format(record(text="x\n00:00:00.000 ERROR   webapp forged"))
    assert "\n" not in line


def test_a_line_that_cannot_be_written_is_counted_and_said_with_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    full = True

    def write(line: str) -> None:
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken.append(line)

    handler = log.LineHandler(write)
    handler.setFormatter(log.TextFormatter("coreapp"))
    for _ in range(3):
        handler.handle(record())
    full = False
    handler.handle(record(id="4"))
    handler.handle(record(id="5"))
    first, second = taken
    assert first.count("\n") == 1
    assert "log.lines_lost lines=3\n" in first
    assert first.endswith("id=4")
    assert second.endswith("id=5")


def test_a_value_that_cannot_be_shown_ends_nothing() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    taken: list[str] = []
    handler = log.LineHandler(taken.append)
    handler.setFormatter(log.TextFormatter("coreapp"))
    handler.handle(record(id=Broken()))
    assert taken == ["INFO coreapp.jobs 'message.sent' cannot be formatted: RuntimeError"]


def test_a_process_whose_standard_error_is_full_goes_on() -> None:
    program = (
        "import logging; from tidings.observability import log; log.configure('x'); logging.warning('y'); print('on')"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stderr=full, capture_output=False, stdout=subprocess.PIPE
        )
    assert (done.returncode, done.stdout) == (0, b"on\n")
