"""The fixtures of `docs/testing.md` are short, and the one for pytest works with the test that the page shows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.examples import page_files

MOST_LINES = 25


def test_the_page_shows_a_test() -> None:
    assert list(page_files.shown()) == ["test_messages.py"]


@pytest.mark.parametrize("path", ["pytest/conftest.py", "jest/tidings.mjs", "jest/messages.test.mjs"])
def test_the_page_links_to_the_fixtures_which_have_at_most_25_lines(path: str) -> None:
    assert f"[`{Path(path).name}`](examples/{path})" in page_files.PAGE.read_text(encoding="utf-8")
    assert len((page_files.EXAMPLES / path).read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.whole_system
def test_the_pytest_fixture_starts_sends_receives_and_stops(tmp_path: Path) -> None:
    conftest = page_files.EXAMPLES / "pytest" / "conftest.py"
    (tmp_path / "conftest.py").write_text(conftest.read_text(encoding="utf-8"))
    (tmp_path / "test_messages.py").write_text(page_files.shown()["test_messages.py"])
    output = page_files.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], tmp_path)
    assert "2 passed" in output
