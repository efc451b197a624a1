"""Errors at start: one line for what the operator can fix, a pointer to the log for a defect of the program."""

from __future__ import annotations

import errno
import sqlite3

import pymysql
import pytest
import sqlalchemy as sa

from cli import guard
from tidings.aio.service import ServiceFailed
from tidings.config.env import SettingsError
from tidings.storage.revisions import PendingMigrations

IN_USE = OSError(errno.EADDRINUSE, "error while attempting to bind on address ('127.0.0.1', 9090): address in use")


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (SettingsError("A='x' is not a number"), 2, "A='x' is not a number"),
        (PendingMigrations("run `tidings migrate`"), 2, "tidings migrate"),
        (IN_USE, 1, "127.0.0.1:9090 is in use"),
        (ServiceFailed("http", IN_USE), 1, "127.0.0.1:9090 is in use"),
        (ExceptionGroup("several", [ValueError("x"), guard.CommandFailure("the second")]), 1, "the second"),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), 1, "/data/x: Permission denied"),
        (OSError(errno.EROFS, "Read-only file system", "/data/x"), 1, "/data/x: Read-only file system"),
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/x"),
            1,
            "/data/x: No space left on device; free space",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "a file that the command writes: No space left on device",
        ),
        (
            sa.exc.OperationalError("", {}, sqlite3.OperationalError("database or disk is full")),
            1,
            "disk is full; free space on the disk of TIDINGS_DATA_DIR",
        ),
        (ServiceFailed("robots", None), 1, "service robots ended by itself"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (sa.exc.OperationalError("", {}, sqlite3.OperationalError("no such table: jobs")), 1, "set TIDINGS_DATA_DIR"),
        (sa.exc.ProgrammingError("", {}, pymysql.err.ProgrammingError(1146, "gone")), 1, "set TIDINGS_DATA_DIR"),
    ],
)
def test_errors_the_operator_can_fix_are_explained(error: BaseException, status: int, words: str) -> None:
    explained = guard.explain(error)
    assert explained is not None
    assert explained[0] == status
    assert words in explained[1]


def test_the_cause_of_an_error_is_explained() -> None:
    try:
        try:
            raise IN_USE
        except OSError as error:
            raise RuntimeError("cannot listen") from error
    except RuntimeError as error:
        explained = guard.explain(error)
    assert explained is not None
    assert "in use" in explained[1]


def test_a_defect_is_one_line_that_mentions_the_log_level(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TIDINGS_LOG_LEVEL", raising=False)
    with guard.one_line("tidings x") as outcome:
        raise KeyError("missing\nthing")
    assert outcome.status == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "KeyError" in said
    assert "TIDINGS_LOG_LEVEL=debug" in said


def test_the_debug_log_level_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDINGS_LOG_LEVEL", "debug")
    with pytest.raises(KeyError), guard.one_line("tidings x"):
        raise KeyError("x")
