"""Options that select rows: an empty or early value never selects everything."""

from __future__ import annotations

import argparse

import pytest

from cli import choices
from cli.commands import queue
from tests.cli.support import run


@pytest.mark.parametrize("text", ["", "+"])
def test_a_recipient_without_digits_is_refused_rather_than_meaning_any(text: str) -> None:
    parser = argparse.ArgumentParser()
    queue.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["purge", "--yes", "--recipient", text])


def test_the_beginning_of_unix_time_is_a_time_rather_than_no_limit() -> None:
    assert choices.parse_time("1970-01-01T00:00:00Z", "--until", 1_700_000_000) != 0


def test_a_wrong_process_is_no_warning_of_the_doctor() -> None:
    done = run("doctor", "webap")
    assert (done.returncode, "'webap' is none of" in done.stderr) == (2, True)
