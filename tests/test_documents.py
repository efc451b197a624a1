"""What the documents say of files is true of the files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Decisions stay as they were taken, and the changelog tells of the past.
DOCUMENTS = (ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md")))
FOLDERS = (
    "tidings", "webapp", "coreapp", "network", "handset", "cli", "migrations", "harness", "tests", "benchmarks", "docs"
)  # fmt: skip
# A path from the root of the repository; the name of a module alone.
PATH = re.compile(rf"(?<![\w./:-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
MODULE = re.compile(r"`([a-z_0-9/]+\.py)`")
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
    # Elsewhere it may be a file of the reader's.
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


def test_every_decision_has_a_number_of_its_own() -> None:
    numbers = [path.name[:4] for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
