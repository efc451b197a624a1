"""Statements of the documents about files are true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Decisions stay as they were taken, and the changelog describes the past.
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "decisions"),
)
# Pages about the source. In other documents, the name of a module alone may be a file of the reader.
ABOUT_SOURCE = {ROOT / "docs" / "architecture.md", ROOT / "docs" / "limits.md", ROOT / "docs" / "state-machines.md"}
ABOUT_SOURCE.update((ROOT / "docs" / "architecture").glob("*.md"))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
# Each decision of the index on one line.
INDEX = re.sub(r"\n +", " ", (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8"))
# Number, link, and status unless accepted: `- 7 [Title](0007-title.md) (amended by 9)`.
LISTED = re.compile(r"^- (\d+) (\[[^\]]+\]\([^)]+\))(?: \(((?:amended|superseded) by [\d, ]+)\))?$", re.MULTILINE)
FOLDERS = (
    "tidings", "webapp", "coreapp", "network", "handset", "cli", "migrations", "harness", "tests", "benchmarks", "docs"
)  # fmt: skip
# Path from the root of the repository; name of a module alone.
PATH = re.compile(rf"(?<![\w./:-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
MODULE = re.compile(r"`([a-z_0-9/]+\.py)`")
VARIABLE = re.compile(r"(?:TIDINGS|WA|WACORE|COREAPP|WEBAPP)_[A-Z0-9_]*[A-Z0-9]")
PROCESSES = ("tidings", "webapp", "coreapp", "network", "handset", "cli")
# Suffixes of variables whose names our sources assemble.
PARTS = ("_FILE", "_CERTIFICATE", "_CERT", "_CA", "_KEY", "_MEDIA")
TEST = re.compile(r"(tests/[\w/]+\.py)::(\w+)")


@pytest.fixture(scope="module")
def present() -> set[str]:
    """Return the files and folders of the repository."""
    found = [path for top in FOLDERS for path in (ROOT / top, *(ROOT / top).rglob("*"))]
    return {str(path.relative_to(ROOT)) for path in found}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_names_exists(document: Path, present: set[str]) -> None:
    text = document.read_text(encoding="utf-8")
    gone = [path for path in PATH.findall(text) if path not in present and f"{path}.py" not in present]
    modules = MODULE.findall(text) if document in ABOUT_SOURCE else []
    gone += [name for name in modules if not any(f"/{path}".endswith(f"/{name}") for path in present)]
    assert gone == []


def test_docs_has_at_most_66_000_words() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    assert len(pages) > 90
    assert sum(len(page.split()) for page in pages) <= 66_000


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    named = TEST.findall(document.read_text(encoding="utf-8"))
    gone = [f"{file}::{test}" for file, test in named if not _has(ROOT / file, test)]
    assert gone == []


def test_a_missing_test_is_detected() -> None:
    here = Path(__file__)
    assert _has(here, "test_a_missing_test_is_detected")
    assert not _has(here, "test_a_test_that_is_not_there")
    assert not _has(ROOT / "tests" / "test_nothing.py", "test_nothing")


def _has(file: Path, test: str) -> bool:
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return re.search(rf"^(async )?def {test}\(", text, re.MULTILINE) is not None


def _is_defined(name: str) -> bool:
    """Return whether a dotted name leads to a module, or to a class or function of one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:count])
        if path.is_dir() or path.with_suffix(".py").exists():
            rest = parts[count:]
            text = path.with_suffix(".py").read_text(encoding="utf-8") if rest and not path.is_dir() else ""
            return not rest or re.search(rf"^(class|(async )?def) {rest[0]}\b", text, re.MULTILINE) is not None
    return False


def test_every_name_in_the_glossary_is_defined() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{'|'.join(PROCESSES)})(?:\.[A-Za-z_]\w*)+)`", text)
    assert len(named) > 50
    assert [name for name in named if not _is_defined(name)] == []
    assert not _is_defined("coreapp.journal.journal.NoSuchClass")
    assert not _is_defined("coreapp.no_such_module")


def _title_and_status(decision: Path) -> tuple[str, str]:
    """Return the title without its number, and the status; empty if the lines have another form."""
    lines = decision.read_text(encoding="utf-8").splitlines()
    title = re.fullmatch(rf"# {int(decision.name[:4])}\. (.+)", lines[0])
    status = re.fullmatch(r"Status: (accepted|(?:amended|superseded) by \d+(?:, \d+)*)", lines[2])
    return title[1] if title else "", status[1] if status else ""


def test_decision_numbers_are_unique() -> None:
    numbers = [path.name[:4] for path in DECISIONS]
    assert len(numbers) > 50
    assert [number for number in numbers if numbers.count(number) > 1] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.name)
def test_the_title_of_a_decision_matches_its_file_name(decision: Path) -> None:
    title, _ = _title_and_status(decision)
    expected = f"{decision.name[:4]}-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')}.md"
    assert decision.name == expected, "first line: `# NUMBER. Title`; file name: `NNNN-title.md`"


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.name)
def test_a_decision_has_a_status_and_links_to_what_changed_it(decision: Path) -> None:
    _, status = _title_and_status(decision)
    assert status, "third line: `Status: accepted`, `Status: amended by N` or `Status: superseded by N`"
    text = decision.read_text(encoding="utf-8")
    for number in re.findall(r"\d+", status):
        assert int(number) > int(decision.name[:4])
        assert f"({int(number):04d}-" in text, f"link to decision {number}, which the status names"


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.name)
def test_a_decision_is_in_the_index(decision: Path) -> None:
    title, status = _title_and_status(decision)
    found = LISTED.findall(INDEX)
    lines = [rest for number, *rest in found if number == str(int(decision.name[:4]))]
    assert len(lines) == 1, f"docs/decisions/README.md must list {decision.name} once"
    link, changed = lines[0]
    assert (link, changed or "accepted") == (f"[{title}]({decision.name})", status)


def test_the_decision_index_mentions_unused_numbers() -> None:
    numbers = {int(path.name[:4]) for path in DECISIONS}
    missing = sorted(set(range(1, 56)) - numbers)
    assert [number for number in missing if f"Number {number} was not used" not in INDEX] == []


@pytest.mark.parametrize("document", [*DOCUMENTS, ROOT / "CHANGELOG.md", *DECISIONS], ids=lambda path: path.name)
def test_every_decision_that_a_document_links_to_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    targets = re.findall(r"\]\(((?:[\w./-]*/)?\d{4}-[a-z0-9-]+\.md)\)", text)
    assert [target for target in targets if not (document.parent / target).exists()] == []


def variables_read() -> Iterator[str]:
    """Yield the names of environment variables in our sources, without those in comments."""
    for path in (file for top in PROCESSES for file in (ROOT / top).rglob("*.py")):
        if path.name == "known_variables.py":
            # A list of all names, which reads none. tests/cli/test_unread_variables.py compares it with the sources.
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and VARIABLE.fullmatch(node.value):
                yield node.value


def variables_described() -> set[str]:
    """Return the variables in the first column of the tables of `docs/configuration.md`, each with its default."""
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    assert all(cell.strip() for row in rows for cell in row[1:-1])
    return {name for row in rows for name in VARIABLE.findall(row[1])}


def test_the_table_lists_exactly_the_variables_that_processes_read() -> None:
    read, described = set(variables_read()), variables_described()
    assert len(read) > 130
    assert read - described == set()
    assert {name for name in described - read if not name.endswith(PARTS)} == set()
