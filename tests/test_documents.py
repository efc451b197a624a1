"""Statements of the documents about files are true."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Decisions stay as they were taken, and the changelog tells of the past.
DOCUMENTS = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md")))
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
    """Files and folders of the repository."""
    found = [path for top in FOLDERS for path in (ROOT / top, *(ROOT / top).rglob("*"))]
    return {str(path.relative_to(ROOT)) for path in found}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_is_there(document: Path, present: set[str]) -> None:
    text = document.read_text(encoding="utf-8")
    gone = [path for path in PATH.findall(text) if path not in present and f"{path}.py" not in present]
    # In other documents it may be a file of the reader's.
    modules = MODULE.findall(text) if document.name == "architecture.md" else []
    gone += [name for name in modules if not any(f"/{path}".endswith(f"/{name}") for path in present)]
    assert gone == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_test_that_a_document_names_is_there(document: Path) -> None:
    named = TEST.findall(document.read_text(encoding="utf-8"))
    gone = [f"{file}::{test}" for file, test in named if not _has(ROOT / file, test)]
    assert gone == []


def test_a_test_that_is_not_there_is_missed() -> None:
    here = Path(__file__)
    assert _has(here, "test_a_test_that_is_not_there_is_missed")
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
    assert not _is_defined("coreapp.journal.NoSuchClass")
    assert not _is_defined("coreapp.no_such_module")


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert [number for number in numbers if numbers.count(number) > 1] == []


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
    """Return the variables in the first column of the tables of `docs/operations.md`, each with its default."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    tables = page.partition("\n## Environment\n")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in tables.splitlines() if line.startswith("| `")]
    assert all(cell.strip() for row in rows for cell in row[1:-1])
    return {name for row in rows for name in VARIABLE.findall(row[1])}


def test_every_variable_that_a_process_reads_is_in_the_table_and_no_other() -> None:
    read, described = set(variables_read()), variables_described()
    assert len(read) > 130
    assert read - described == set()
    assert {name for name in described - read if not name.endswith(PARTS)} == set()
