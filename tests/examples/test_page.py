"""The examples in `docs/api.md` are the files of `docs/examples`, and are short."""

from __future__ import annotations

import re

import pytest

from tests.examples.support import EXAMPLES

PAGE = (EXAMPLES.parent / "api.md").read_text(encoding="utf-8")
FILES = ("client.py", "receiver.py", "client.mjs", "receiver.mjs")
MOST_LINES = 40


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_the_text_of_each_example_file(name: str) -> None:
    shown = re.search(rf"\(examples/{re.escape(name)}\)[^`]*```(?:python|javascript)\n(.*?)```\n", PAGE, re.DOTALL)
    assert shown is not None
    assert shown[1] == (EXAMPLES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
def test_an_example_has_at_most_40_lines(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_the_page_shows_every_example() -> None:
    assert {path.name for path in EXAMPLES.iterdir() if path.is_file()} == set(FILES)
