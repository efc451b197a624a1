"""The fixtures of `docs/testing.md` are short, and the one for pytest works as the page shows it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.examples import page_files

MOST_LINES = 25


def test_the_page_shows_the_pytest_fixture_and_its_test() -> None:
    assert list(page_files.shown()) == ["conftest.py", "test_messages.py"]


@pytest.mark.parametrize("name", ["tidings.mjs", "messages.test.mjs"])
def test_the_page_links_to_the_files_for_jest(name: str) -> None:
    assert (page_files.JEST / name).is_file()
    assert f"[`{name}`](examples/jest/{name})" in page_files.PAGE.read_text(encoding="utf-8")


def test_a_fixture_has_at_most_25_lines() -> None:
    fixtures = (page_files.shown()["conftest.py"], (page_files.JEST / "tidings.mjs").read_text(encoding="utf-8"))
    assert [len(fixture.splitlines()) for fixture in fixtures if len(fixture.splitlines()) > MOST_LINES] == []


@pytest.mark.whole_system
def test_the_pytest_fixture_starts_sends_receives_and_stops(tmp_path: Path) -> None:
    for name in ("conftest.py", "test_messages.py"):
        (tmp_path / name).write_text(page_files.shown()[name])
    output = page_files.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)
    assert "2 passed" in output
