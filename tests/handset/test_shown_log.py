"""Log of the messages that robots have shown, and its size limit."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

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


def test_a_new_file_that_cannot_be_opened_does_not_divert_lines_into_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ShownLog(tmp_path / "robots.jsonl", ManualClock(), limit=100)

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", full)
        with contextlib.suppress(OSError):
            record.append([message(1)])
    # Has the next free descriptor, as the connection to the network would.
    with (tmp_path / "other").open("wb"), contextlib.suppress(OSError):
        record.append([message(2)])
    assert (tmp_path / "other").read_bytes() == b""
