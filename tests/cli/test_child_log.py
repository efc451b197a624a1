"""What a child says is kept, up to a size; only what matters is repeated."""

from __future__ import annotations

import logging
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tidings.cli.child_log import ChildLog
from tidings.runtime import log

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR


def lines() -> bytes:
    """One line of each level in each style, with words in them that could mislead."""
    said = []
    for formatter in (log.TextFormatter("network"), log.JSONFormatter("network")):
        for level in (INFO, WARNING, ERROR):
            record = logging.LogRecord("a.b", level, __file__, 1, "thing.happened", None, None)
            record.__dict__["text"] = "ERROR WARNING"
            said.append(formatter.format(record))
    return "".join(f"{line}\n" for line in said).encode()


@given(st.lists(st.integers(1, 80), min_size=1, max_size=20))
def test_warnings_are_repeated_once_however_the_stream_is_cut(tmp_path_factory: object, pieces: list[int]) -> None:
    path = tmp_path_factory.mktemp("log") / "x.log"  # type: ignore[attr-defined]
    repeated: list[str] = []
    child = ChildLog(path, repeated.append)
    stream, position, turn = lines(), 0, 0
    while position < len(stream):
        size = pieces[turn % len(pieces)]
        child.write(stream[position : position + size])
        position, turn = position + size, turn + 1
    child.close()
    assert path.read_bytes() == stream
    all_lines = stream.decode().splitlines()
    assert repeated == [all_lines[index] for index in (1, 2, 4, 5)]


def test_the_last_word_of_a_child_is_remembered(tmp_path: Path) -> None:
    child = ChildLog(tmp_path / "x.log", lambda line: None)
    child.write(b"12:00:00.000 INFO    network x\ntidings network: 127.0.0.1:1 is in ")
    child.write(b"use\n")
    assert child.last_word == "network: 127.0.0.1:1 is in use"
    child.close()


def test_the_file_is_bounded_and_the_one_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("of the last run\n")
    child = ChildLog(path, lambda line: None, limit=1000)
    assert (tmp_path / "x.log.1").read_text() == "of the last run\n"
    for number in range(100):
        child.write(f"{number:04d} {'x' * 95}\n".encode())
    child.close()
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= 1200
