"""One event is one line that machines and people can read."""

from __future__ import annotations

import json
import logging

from tidings.runtime import log


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


def test_a_value_with_a_line_break_cannot_forge_a_second_line() -> None:
    line = log.TextFormatter("webapp").format(record(text="x\n00:00:00.000 ERROR   webapp forged"))
    assert "\n" not in line
