"""Output of a child process: kept up to a maximum size. Only important lines are repeated on the console."""

from __future__ import annotations

import contextlib
import logging
import resource
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from cli.child_log import ChildLog
from tidings.observability import log

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR


def lines() -> bytes:
    """Return one line of each level in each style, with words in them that could mislead the parser."""
    said = []
    for formatter in (log.TextFormatter("network"), log.JSONFormatter("network")):
        for level in (INFO, WARNING, ERROR):
            record = logging.LogRecord("a.b", level, __file__, 1, "thing.happened", None, None)
            record.__dict__["text"] = "ERROR WARNING"
            said.append(formatter.format(record))
    return "".join(f"{line}\n" for line in said).encode()


@given(st.lists(st.integers(1, 80), min_size=1, max_size=20))
def test_warnings_are_repeated_once_however_the_stream_is_split(tmp_path_factory: object, pieces: list[int]) -> None:
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


def test_the_last_line_of_a_child_is_kept(tmp_path: Path) -> None:
    child = ChildLog(tmp_path / "x.log", lambda line: None)
    child.write(b"12:00:00.000 INFO    network x\ntidings network: 127.0.0.1:1 is in ")
    child.write(b"use\n")
    assert child.exit_error == "network: 127.0.0.1:1 is in use"
    child.close()


def test_the_log_file_is_bounded_and_the_previous_one_is_kept(tmp_path: Path) -> None:
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


@contextlib.contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Limit the size of files, which has the effect of a full disk for this process alone."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_an_unwritable_log_file_blocks_nothing_and_later_notes_the_lost_lines(tmp_path: Path) -> None:
    path, said, now = tmp_path / "x.log", list[str](), [0.0]
    child = ChildLog(path, said.append, monotonic=lambda: now[0])
    with no_file_longer_than(20):
        child.write(b"12:00:00.000 INFO  kept\n")
        for _ in range(3):
            child.write(b"12:00:00.000 WARNING lost\nand this\n")
            now[0] += 100
    child.write(b"kept again\n")
    child.close()
    assert len(said) == 5
    assert "x.log cannot be written: File too large" in said[0]
    assert said[1:4] == ["12:00:00.000 WARNING lost"] * 3
    assert said[4].endswith("x.log can be written again; 7 lines are missing")
    assert path.read_text().splitlines()[1:] == [
        "(7 lines are missing here: the file could not be written)",
        "kept again",
    ]


def test_a_failed_log_directory_is_reported_once_and_the_last_line_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    child = ChildLog(tmp_path / "file" / "x.log", said.append)
    child.write(b"tidings network: no\n")
    child.write(b"more\n")
    child.close()
    assert len(said) == 1
    assert child.exit_error == "network: no"
