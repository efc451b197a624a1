"""The kept results of benchmarks: small, complete and without dangling links."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FILES = sorted(RESULTS.iterdir())
JSON = [path for path in FILES if path.suffix == ".json"]
LINK = re.compile(r"\]\(([^)#]+)\)")


def test_only_tables_and_small_files_of_figures_are_kept() -> None:
    assert len(JSON) >= 29
    assert {path.suffix for path in FILES} == {".md", ".json"}
    assert [path.name for path in JSON if path.with_suffix(".md") not in FILES] == []


@pytest.mark.parametrize("path", JSON, ids=lambda path: path.stem)
def test_a_file_of_figures_is_small_and_has_date_commit_machine_and_rates(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    assert len(text) <= 64 * 1024
    found = json.loads(text)
    assert path.name.startswith(found["date"])
    assert re.fullmatch(r"[0-9a-f]{7,40}\+?", found.get("commit") or found["added_in"])
    assert {"cores", "python"} <= found["machine"].keys()
    assert len({"mariadb", "mysql"} & found["machine"].keys()) == 1
    assert found["runs"]
    assert [run["name"] for run in found["runs"] if not run["rate"] > 0] == []
    assert [run["name"] for run in found["runs"] if {"points", "throughput"} & run.keys()] == []


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".md"], ids=lambda path: path.stem)
def test_every_file_that_a_result_links_to_exists(path: Path) -> None:
    links = LINK.findall(path.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (path.parent / link).exists()] == []


@pytest.mark.parametrize("name", ["docs/performance.md", "docs/reliability.md", "benchmarks/README.md", "README.md"])
def test_every_result_that_a_document_links_to_exists(name: str) -> None:
    document = ROOT / name
    text = document.read_text(encoding="utf-8")
    links = [*LINK.findall(text), *re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)]
    results = [link for link in links if "results/" in link]
    assert [link for link in results if not (document.parent / link).exists()] == []
