"""`docs/offline.md` is short, and has a block for each terminal."""

from __future__ import annotations

from tests.examples import page_files

MOST_LINES = 80


def test_the_page_has_at_most_80_lines_and_a_block_for_each_terminal() -> None:
    assert len(page_files.OFFLINE.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
    assert list(page_files.shown(page_files.OFFLINE)) == ["up", "receive", "send"]
