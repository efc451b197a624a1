"""Parser of docs/device-api.md and its values: sections, tables, lists of fields, examples."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "device-api.md"
TEXT = PAGE.read_text(encoding="utf-8")
VALUES = PAGE.with_name("device-api-values.ini")


def section(title: str) -> str:
    """Return the text under a heading, up to the next heading of the same level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n", TEXT, re.MULTILINE)
    assert found, f"the page has no section {title!r}"
    end = re.search(rf"^#{{1,{len(found[1])}}} ", TEXT[found.end() :], re.MULTILINE)
    return TEXT[found.end() : found.end() + end.start() if end else len(TEXT)]


def fences(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def example_frames(text: str = TEXT) -> list[tuple[str, str]]:
    """Return (arrow, JSON) of each frame."""
    return [(arrow, body) for arrow, body in re.findall(r"^([→←]) (.*)$", text, re.MULTILINE)]


def table(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this heading."""
    found = re.search(rf"^\| {heading} \|.*\n\|[-| ]+\|\n((?:\|.*\n)*)", text, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found[1].splitlines()] if found else []


def fields(text: str) -> dict[str, str]:
    """Return the type, and default if any, of each field that a list describes: `- `name` (type, default …): …`."""
    return dict(re.findall(r"^- `(\w+)` \(([^)]*)\)", text, re.MULTILINE))


def hex_dump(text: str) -> bytes:
    (dump,) = fences("hex", text)
    return bytes.fromhex("".join(re.split(r" {2,}", line)[0] for line in dump.splitlines()))


def values(section: str) -> dict[str, bytes]:
    """Return the values of a section of docs/device-api-values.ini by name."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(VALUES, encoding="utf-8")
    return {name: bytes.fromhex(text) for name, text in parser[section].items()}
