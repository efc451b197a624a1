"""`docs/api.md` links to the files of `docs/examples`, which are short."""

from __future__ import annotations

import pytest

from tests.examples.support import EXAMPLES

PAGE = (EXAMPLES.parent / "api.md").read_text(encoding="utf-8")
FILES = ("client.py", "receiver.py", "client.mjs", "receiver.mjs")
MOST_LINES = 40


@pytest.mark.parametrize("name", FILES)
def test_the_page_links_to_each_example_file(name: str) -> None:
    section = PAGE.partition("\n## A complete client and receiver\n")[2].partition("\n## ")[0]
    assert f"[`{name}`](examples/{name})" in section


@pytest.mark.parametrize("name", FILES)
def test_an_example_has_at_most_40_lines(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_the_page_links_to_every_example() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == set(FILES)
