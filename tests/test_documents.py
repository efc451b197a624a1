"""What the documents say of files is true of the files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Decisions stay as they were taken, and the changelog tells of the past.
DOCUMENTS = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
FOLDERS = (
    "tidings", "webapp", "coreapp", "network", "handset", "cli", "migrations", "harness", "tests", "benchmarks", "docs"
)  # fmt: skip
# A path from the root of the repository; the name of a module alone.
PATH = re.compile(rf"(?<![\w./:-])((?:{'|'.join(FOLDERS)})/[\w./-]*\w)")
MODULE = re.compile(r"`([a-z_0-9/]+\.py)`")


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
