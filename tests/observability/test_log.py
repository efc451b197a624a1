"""One event is one line that machines and people can read."""

from __future__ import annotations

import errno
import json
import logging
import subprocess
import sys
import threading

import pytest

from tidings.observability import log
from tidings.observability.log import RepeatLimit


def record(**fields: object) -> logging.LogRecord:
    made = logging.LogRecord("coreapp.jobs", logging.INFO, __file__, 1, "message.sent", None, None)
    made.__dict__.update(fields)
    return made


def test_fields_follow_the_event_as_key_and_value() -> None:
    line = log.TextFormatter("coreapp").format(record(id="abc", took_ms=3))
    assert line.endswith("INFO    coreapp  coreapp.jobs message.sent id=abc took_ms=3")
    assert "\n" not in line


def test_the_json_style_is_one_object_with_all_fields() -> None:
    entry = json.loads(log.JSONFormatter("coreapp").format(record(id="abc", took_ms=3)))
    assert (entry["event"], entry["process"], entry["id"], entry["took_ms"]) == ("message.sent", "coreapp", "abc", 3)
    assert entry["level"] == "info"


def test_a_field_with_a_reserved_name_gets_a_prefix() -> None:
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


def test_lost_lines_are_counted_and_reported_with_the_next_line(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_value_that_cannot_be_formatted_does_not_raise() -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError

    taken: list[str] = []
    handler = log.LineHandler(taken.append)
    handler.setFormatter(log.TextFormatter("coreapp"))
    handler.handle(record(id=Broken()))
    assert taken == ["INFO coreapp.jobs 'message.sent' cannot be formatted: RuntimeError"]


class Clock:
    """Monotonic clock that tests move."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def failure(error: str, event: str = "http.failed") -> logging.LogRecord:
    made = logging.LogRecord("webapp.http.envelope", logging.WARNING, __file__, 1, event, None, None)
    made.error = error
    return made


def limited(clock: Clock) -> tuple[log.LineHandler, list[str]]:
    written: list[str] = []
    handler = log.LineHandler(written.append, RepeatLimit(clock))
    handler.setFormatter(log.TextFormatter("webapp"))
    return handler, written


def test_an_error_that_repeats_is_written_10_times_a_minute_and_then_counted() -> None:
    clock = Clock()
    handler, written = limited(clock)
    for number in range(8000):
        handler.handle(failure(f"1016 request {number + 100_000} came to a full queue"))
    handler.handle(failure("the database cannot be used"))
    handler.handle(record(id="beside"))
    assert len(written) == 12
    clock.seconds += 60.0
    handler.handle(record(id="later"))
    assert len(written) == 14
    assert (
        "log.lines_suppressed suppressed=http.failed lines=7990 error=1016 request # came to a full queue"
        in (written[12])
    )
    assert written[13].endswith("id=later")
    handler.handle(failure("1016 request 1 came to a full queue"))
    assert len(written) == 15


def test_exceptions_are_limited_by_their_type_and_debug_and_info_are_not_limited() -> None:
    handler, written = limited(Clock())
    for error in (ValueError("a"), ValueError("b"), KeyError("c")) * 20:
        try:
            raise error
        except (ValueError, KeyError):
            made = failure("", "shard.failed")
            made.exc_info = sys.exc_info()
            handler.handle(made)
    assert sum("ValueError" in line for line in written) == 10
    assert sum("KeyError" in line for line in written) == 10
    for _ in range(50):
        handler.handle(record())
    assert len(written) == 70


def test_neither_many_different_errors_nor_many_events_pass_the_limit() -> None:
    handler, written = limited(Clock())
    for letter in "abcdefghijklmnopqrstuvwxyz" * 100:
        handler.handle(failure(f"error {letter}"))
    # Eight errors and the rest.
    assert len(written) == 90
    for number in range(2000):
        handler.handle(failure("x", f"event {number}"))
    assert len(written) <= 90 + 500 + 10


def test_the_last_suppressed_lines_are_reported_at_the_end_and_by_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, written = limited(Clock())
    for _ in range(12):
        handler.handle(failure("x"))
    handler.close()
    assert written[-1].endswith("log.lines_suppressed suppressed=http.failed lines=2 error=x")

    reported = threading.Event()

    def write(line: str) -> None:
        if "log.lines_suppressed" in line:
            reported.set()

    monkeypatch.setattr("tidings.observability.log.PERIOD", 0.1)
    handler = log.LineHandler(write, RepeatLimit())
    handler.setFormatter(log.TextFormatter("webapp"))
    for _ in range(12):
        handler.handle(failure("x"))
    assert reported.wait(30)


def test_only_debug_writes_repetitions() -> None:
    program = (
        "import logging, sys; from tidings.observability import log; log.configure('x', level=sys.argv[1])\n"
        "for _ in range(30): logging.warning('y')"
    )
    counts = [
        subprocess.run([sys.executable, "-c", program, level], stderr=subprocess.PIPE, text=True).stderr.count(" y\n")
        for level in ("info", "debug")
    ]
    assert counts == [10, 30]


def test_a_full_standard_error_does_not_stop_the_process() -> None:
    program = (
        "import logging; from tidings.observability import log; log.configure('x'); logging.warning('y'); print('on')"
    )
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stderr=full, capture_output=False, stdout=subprocess.PIPE
        )
    assert (done.returncode, done.stdout) == (0, b"on\n")
