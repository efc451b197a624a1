"""The kept results of benchmarks: small, complete and without dangling links."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FILES = sorted(RESULTS.iterdir())
JSON = [path for path in FILES if path.suffix == ".json"]
LINK = re.compile(r"\]\(([^)#]+)\)")
PERFORMANCE = ROOT / "docs" / "performance.md"
# A result file and a commit, such as [seed000 4d70eb9], and the line of the page that names the file.
LABEL = re.compile(r"\[([a-z0-9-]+ [0-9a-f]{7,12})\](?!:)")
DEFINITION = re.compile(r"^\[([a-z0-9-]+ [0-9a-f]{7,12})\]: (\S+)$", re.MULTILINE)


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


def list_figures(text: str) -> Iterator[str]:
    """Yield each table row below the header, and each list item, of a page."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        is_header = line.startswith("|") and lines[index + 1].startswith("|--")
        if line.startswith("|") and not is_header and not line.startswith("|--"):
            yield line
        if line.startswith("- "):
            more = itertools.takewhile(lambda each: each.startswith("  "), lines[index + 1 :])
            yield "\n".join([line, *more])


def test_every_row_and_item_of_the_performance_page_names_result_and_commit() -> None:
    figures = list(list_figures(PERFORMANCE.read_text(encoding="utf-8")))
    assert len(figures) >= 60
    assert [figure for figure in figures if not LABEL.search(figure)] == []


def test_a_row_or_item_without_a_result_is_detected() -> None:
    page = "| a | b |\n|---|--:|\n| x | 1 |\n| y [some abcdef0] | 2 |\n\n"
    page += "- no result\n- one in the\n  next line [some abcdef0]\n"
    assert [figure for figure in list_figures(page) if not LABEL.search(figure)] == ["| x | 1 |", "- no result"]
    assert len(list(list_figures(page))) == 4


def test_each_result_of_the_performance_page_has_the_commit_that_the_page_names() -> None:
    text = PERFORMANCE.read_text(encoding="utf-8")
    defined = dict(DEFINITION.findall(text))
    assert set(LABEL.findall(text)) == set(defined)
    for label, target in defined.items():
        found = json.loads((PERFORMANCE.parent / target).with_suffix(".json").read_text(encoding="utf-8"))
        commit = label.partition(" ")[2]
        assert (found.get("commit") or found["added_in"]).startswith(commit), label
        assert not str(found.get("commit")).endswith("+"), f"{target} was measured with uncommitted changes"


def test_the_commits_that_the_performance_page_names_exist() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)

    try:
        shallow = run("rev-parse", "--is-shallow-repository")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if shallow.stdout.strip() != "false":
        pytest.skip("this is not a checkout with its history")
    commits = {label.partition(" ")[2] for label, _ in DEFINITION.findall(PERFORMANCE.read_text(encoding="utf-8"))}
    assert commits
    assert [commit for commit in sorted(commits) if run("cat-file", "-e", f"{commit}^{{commit}}").returncode] == []
    assert run("cat-file", "-e", "0123456789ab^{commit}").returncode
