"""The fixtures of `docs/testing.md` are short, and the one for pytest works as the page shows it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.examples import page_files

MOST_LINES = 25


def test_the_page_shows_both_fixtures_and_their_tests() -> None:
    assert list(page_files.shown()) == ["conftest.py", "test_messages.py", "tidings.mjs", "messages.test.mjs"]


@pytest.mark.parametrize("name", ["conftest.py", "tidings.mjs"])
def test_a_fixture_has_at_most_25_lines(name: str) -> None:
    assert len(page_files.shown()[name].splitlines()) <= MOST_LINES


@pytest.mark.whole_system
def test_the_pytest_fixture_starts_sends_receives_and_stops(tmp_path: Path) -> None:
    for name in ("conftest.py", "test_messages.py"):
        (tmp_path / name).write_text(page_files.shown()[name])
    output = page_files.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)
    assert "2 passed" in output
