"""Templates are made, listed and deleted from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_main import assert_one_line, run

DEFINITIONS = Path(__file__).parents[1] / "data" / "api" / "templates_good.json"


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    """A data directory with its tables."""
    variables = {"TIDINGS_DATA_DIR": str(tmp_path)}
    assert run("migrate", **variables).returncode == 0
    return variables


def test_templates_are_made_listed_and_deleted(data: dict[str, str], tmp_path: Path) -> None:
    made = run("template", "create", str(DEFINITIONS), **data)
    assert made.returncode == 0, made.stderr
    assert "order  en_US  APPROVED" in made.stdout
    listed = run("template", "list", **data).stdout
    assert "hello  en_US  UTILITY  APPROVED  Hello {{1}}" in listed
    assert f"{len(json.loads(DEFINITIONS.read_text()))} templates" in listed
    assert run("template", "delete", "plain", "--language", "de", **data).stdout == "1 deleted\n"
    kept = json.loads(run("template", "list", "--json", **data).stdout)
    assert len(kept) == len(json.loads(DEFINITIONS.read_text())) - 1

    assert_one_line(run("template", "create", str(DEFINITIONS), **data), 1, ".*there is a template order in en_US")
    assert_one_line(run("template", "delete", "nothing", **data), 1, ".*there is no template nothing")
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"name": "x", "language": "en"}')
    assert_one_line(run("template", "create", str(wrong), **data), 1, ".*components: is missing")
    wrong.write_text("{")
    assert_one_line(run("template", "create", str(wrong), **data), 1, ".*is no JSON")
    assert_one_line(run("template", "create", str(tmp_path / "none"), **data), 1, ".*cannot be read")
