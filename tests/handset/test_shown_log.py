"""Log of the messages that robots have shown, and its size limit."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from handset.application import ReceivedMessage
from handset.shown_log import ShownLog
from tests.manual_clock import ManualClock


def message(number: int) -> ReceivedMessage:
    return ReceivedMessage("15550110001", "15550000000", f"m{number}", number, 1, 1_000, "text", "hello")


def test_the_log_consists_of_two_size_limited_files_that_are_both_searched(tmp_path: Path) -> None:
    path = tmp_path / "robots.jsonl"
    record = ShownLog(path, ManualClock(), limit=1000)
    for number in range(50):
        record.append([message(number)])
        assert record.list_shown([message(number), message(99)]) == {("15550110001", f"m{number}")}
    record.close()
    assert {entry.name for entry in tmp_path.iterdir()} == {"robots.jsonl", "robots.jsonl.1"}
    assert max(entry.stat().st_size for entry in tmp_path.iterdir()) < 1300
    kept = [json.loads(line)["id"] for name in (".1", "") for line in Path(f"{path}{name}").read_text().splitlines()]
    assert kept == [f"m{number}" for number in range(50 - len(kept), 50)]
    again = ShownLog(path, ManualClock(), limit=0)
    for number in range(100):
        again.append([message(number)])
    again.close()
    assert path.stat().st_size > 10_000


def test_a_message_without_text_is_hashed_by_its_displayed_lines(tmp_path: Path) -> None:
    path = tmp_path / "robots.jsonl"
    record = ShownLog(path, ManualClock())
    filled = {"body": "Hello Ada", "buttons": [{"type": "quick_reply", "text": "Thanks"}]}
    raw = json.dumps({"type": "template", "template": {"name": "order", "filled": filled}})
    record.append([ReceivedMessage("15550110001", "15550000000", "m1", 1, 1, 1_000, "template", "", raw)])
    record.close()
    read = hashlib.sha256(b"Hello Ada\n  1. Thanks").hexdigest()
    assert json.loads(path.read_text())["sha256"] == read
