"""Templates on the command line: created, listed and deleted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_main import assert_one_line, run

EXPORTED = Path(__file__).parents[1] / "data" / "api" / "templates_exported.json"
DEFINITIONS = Path(__file__).parents[1] / "data" / "api" / "templates_good.json"


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    """Variables for a data directory with tables."""
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0
    return variables


def test_templates_are_created_listed_and_deleted(data: dict[str, str], tmp_path: Path) -> None:
    made = run("template", "create", str(DEFINITIONS), **data)
    assert made.returncode == 0, made.stderr
    assert "order  en_US  APPROVED" in made.stdout
    listed = run("template", "list", **data).stdout
    assert "hello  en_US  UTILITY  APPROVED  Hello {{1}}" in listed
    assert f"{len(json.loads(DEFINITIONS.read_text()))} templates" in listed
    assert run("template", "delete", "plain", "--language", "de", **data).stdout == "1 deleted\n"
    kept = json.loads(run("template", "list", "--json", **data).stdout)
    assert len(kept) == len(json.loads(DEFINITIONS.read_text())) - 1

    assert_one_line(run("template", "create", str(DEFINITIONS), **data), 1, ".*a template order in en_US")
    assert_one_line(run("template", "delete", "nothing", **data), 1, ".*there is no template nothing")
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"name": "x", "language": "en"}')
    assert_one_line(run("template", "create", str(wrong), **data), 1, ".*components: is missing")
    wrong.write_text("{")
    assert_one_line(run("template", "create", str(wrong), **data), 1, ".*is not JSON")
    assert_one_line(run("template", "create", str(tmp_path / "none"), **data), 1, ".*cannot be read")


def test_an_import_is_all_or_nothing_unless_valid_templates_are_to_be_kept(
    data: dict[str, str], tmp_path: Path
) -> None:
    exported = json.loads(EXPORTED.read_text())
    exported["data"][2]["components"] = []
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(exported))
    failed = run("template", "import", str(wrong), **data)
    assert failed.returncode == 1
    assert failed.stdout == "refused  data[2] (old in en): components: should have one BODY\n"
    assert "nothing was imported: 1 of 4 templates are refused" in failed.stderr
    assert run("template", "list", **data).stdout == "0 templates\n"
    partly = run("template", "import", str(wrong), "--partial", **data)
    assert (partly.returncode, partly.stdout.splitlines()[-1]) == (1, "3 imported, 0 existing, 1 refused")
    whole = run("template", "import", str(EXPORTED), **data)
    assert (whole.returncode, whole.stdout) == (0, "1 imported, 3 existing, 0 refused\n")
