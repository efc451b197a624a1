"""Templates on the command line: created, listed and deleted."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from pathlib import Path

import pytest

from tests.cli.support import assert_one_line, run
from tidings.wire.cloud.identity import template_id

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
    good = json.loads(DEFINITIONS.read_text())[0]
    wrong.write_text(json.dumps([good, {"name": "x", "language": "en"}, 7]))
    assert_one_line(run("template", "create", str(wrong), **data), 1, r".*: \[1\]: components: is missing")
    wrong.write_text("{")
    assert_one_line(run("template", "create", str(wrong), **data), 1, ".*is not JSON")
    assert_one_line(run("template", "create", str(tmp_path / "none"), **data), 1, ".*cannot be read")


def test_an_empty_number_is_refused_with_the_option_s_name(data: dict[str, str]) -> None:
    words = "tidings template list: error: argument --number: should not be empty"
    assert_one_line(run("template", "list", "--number", "", **data), 2, words)


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
    assert "nothing was imported: 1 of 4 templates refused" in failed.stderr
    assert run("template", "list", **data).stdout == "0 templates\n"
    partly = run("template", "import", str(wrong), "--partial", **data)
    assert (partly.returncode, partly.stdout.splitlines()[-1]) == (1, "3 imported, 0 existing, 1 refused")
    whole = run("template", "import", str(EXPORTED), **data)
    assert (whole.returncode, whole.stdout) == (0, "1 imported, 3 existing, 0 refused\n")


def test_the_operator_reviews_pauses_rates_and_moves_templates(data: dict[str, str], tmp_path: Path) -> None:
    definition = {"name": "order", "language": "en", "components": [{"type": "BODY", "text": "Hi"}]}
    file = tmp_path / "order.json"
    file.write_text(json.dumps([{**definition, "status": "PENDING"}, {**definition, "language": "de"}]))
    assert run("template", "create", str(file), **data).returncode == 0

    def act(*words: str) -> str:
        done = run("template", *words, **data)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert act("approve", "order") == "order  en  PENDING -> APPROVED\n"
    words = ("--reason", "rate_limiting_pause", "--explanation", "blocked")
    assert act("pause", "order", "--language", "de", *words) == "order  de  APPROVED -> PAUSED\n"
    assert act("approve", "order") == "order  de  PAUSED -> APPROVED\n"
    words = ("--reason", "INVALID_FORMAT", "--explanation", "why", "--recommendation", "how")
    assert act("reject", "order", "--language", "en", *words) == "order  en  APPROVED -> REJECTED\n"
    assert act("disable", "order", "--language", "de", "--reason", "SCAM") == "order  de  APPROVED -> DISABLED\n"
    assert act("quality", "order", "yellow", "--language", "de") == "order  de  UNKNOWN -> YELLOW\n"
    assert act("category", "order", "MARKETING") == (
        "order  de  UTILITY -> MARKETING\norder  en  UTILITY -> MARKETING\n"
    )
    assert "order  en  MARKETING  REJECTED  Hi" in act("list")
    with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as connection:
        columns = "kind, language, old_value, new_value, reason, info"
        found = connection.execute(f"SELECT {columns} FROM template_events ORDER BY version, position").fetchall()
        rejected = connection.execute("SELECT rejected_reason FROM templates WHERE language = 'en'").fetchall()
    assert [(*row[:5], json.loads(row[5])) for row in found] == [
        ("status", "en", "PENDING", "APPROVED", "NONE", {}),
        ("status", "de", "APPROVED", "PAUSED", "NONE", {"title": "RATE_LIMITING_PAUSE", "description": "blocked"}),
        ("status", "de", "PAUSED", "APPROVED", "NONE", {}),
        ("status", "en", "APPROVED", "REJECTED", "INVALID_FORMAT", {"description": "why", "recommendation": "how"}),
        ("status", "de", "APPROVED", "DISABLED", "SCAM", {}),
        ("quality", "de", "UNKNOWN", "YELLOW", None, {}),
        ("category", "de", "UTILITY", "MARKETING", None, {}),
        ("category", "en", "UTILITY", "MARKETING", None, {}),
    ]
    assert rejected == [("INVALID_FORMAT",)]


def test_pauses_end_and_moves_are_announced(data: dict[str, str], tmp_path: Path) -> None:
    definition = {"name": "order", "language": "en", "components": [{"type": "BODY", "text": "Hi"}]}
    file = tmp_path / "order.json"
    file.write_text(json.dumps([definition, {**definition, "language": "de"}]))
    assert run("template", "create", str(file), **data).returncode == 0
    time = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"

    def act(*words: str) -> str:
        done = run("template", *words, **data)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def stored() -> list[tuple[str, int, int | None, str | None]]:
        with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as connection:
            query = "SELECT status, pauses, review_at, next_category FROM templates ORDER BY language"
            return connection.execute(query).fetchall()

    paused = act("pause", "order", "--language", "en", "--seconds", "7200")
    assert re.fullmatch(rf"order  en  APPROVED -> PAUSED until {time}\n", paused)
    assert act("approve", "order", "--language", "en") == "order  en  PAUSED -> APPROVED\n"
    assert [row[:2] for row in stored()] == [("APPROVED", 0), ("APPROVED", 1)]
    act("pause", "order")
    (first, second) = stored()
    assert (first[:2], second[:2]) == (("PAUSED", 1), ("PAUSED", 2))
    assert second[2] is not None
    assert first[2] is not None
    assert second[2] - first[2] == 10_800_000
    act("approve", "order")
    assert act("pause", "order", "--language", "en") == "order  en  APPROVED -> DISABLED\n"
    announced = act("category", "order", "MARKETING", "--language", "de", "--after", "86400")
    assert re.fullmatch(rf"order  de  UTILITY -> UTILITY, MARKETING from {time}\n", announced)
    assert [row[3] for row in stored()] == ["MARKETING", None]
    cancelled = act("category", "order", "UTILITY", "--language", "de")
    assert re.fullmatch(rf"order  de  UTILITY, MARKETING from {time} -> UTILITY\n", cancelled)
    assert [row[3] for row in stored()] == [None, None]
    for words in (("category", "order", "MARKETING", "--after", "0"), ("pause", "order", "--seconds", "2592001")):
        refused = run("template", *words, **data)
        assert_one_line(refused, 2, ".*is not a whole number from 1 to 2592000")


def test_impossible_decisions_change_nothing_and_are_explained(data: dict[str, str], tmp_path: Path) -> None:
    definition = {"name": "order", "language": "en", "components": [{"type": "BODY", "text": "Hi"}]}
    file = tmp_path / "order.json"
    file.write_text(json.dumps([definition, {**definition, "language": "fr", "status": "PENDING"}]))
    assert run("template", "create", str(file), **data).returncode == 0
    for words, line in (
        (("approve", "nothing"), "there is no template nothing$"),
        (("approve", "order", "--language", "it"), "there is no template order in it$"),
        (("approve", "order", "--language", "en"), "order is APPROVED already$"),
        (
            ("pause", "order"),
            "order in fr is PENDING: only templates that are APPROVED can become PAUSED$",
        ),
        (("quality", "order", "UNKNOWN"), "order is UNKNOWN already$"),
        (("reject", "order", "--recommendation", "how"), "--recommendation needs --explanation"),
        (("approve", "order", "--number", "15550000009"), "15550000009 is not a number of this installation"),
    ):
        assert_one_line(run("template", *words, **data), 1, f"tidings template: {line}")
    for words in (("reject", "order", "--reason", "UGLY"), ("quality", "order", "BLUE"), ("category", "order", "X")):
        assert_one_line(run("template", *words, **data), 2, ".*invalid choice")
    listed = run("template", "list", **data).stdout
    assert "order  en  UTILITY  APPROVED" in listed
    assert "order  fr  UTILITY  PENDING" in listed


def test_templates_are_edited_from_a_file(data: dict[str, str], tmp_path: Path) -> None:
    definition = {"name": "order", "language": "en", "components": [{"type": "BODY", "text": "Hi"}]}
    file = tmp_path / "order.json"
    file.write_text(json.dumps(definition | {"status": "PAUSED"}))
    assert run("template", "create", str(file), **data).returncode == 0
    file.write_text(json.dumps(definition | {"category": "MARKETING", "components": [{"type": "BODY", "text": "Yo"}]}))
    edited = run("template", "edit", str(file), **data)
    assert edited.returncode == 0, edited.stderr
    assert edited.stdout.startswith("order  en  PAUSED  namespace ")
    [stored] = json.loads(run("template", "list", "--json", **data).stdout)
    assert (stored["category"], stored["components"]) == ("MARKETING", [{"type": "BODY", "text": "Yo"}])
    file.write_text(json.dumps(definition | {"name": "other"}))
    assert_one_line(run("template", "edit", str(file), **data), 1, ".*there is no template other in en")
    assert len(json.loads(run("template", "list", "--json", **data).stdout)) == 1


def test_templates_of_the_cloud_api_are_changed_by_a_coreapp_only(data: dict[str, str], tmp_path: Path) -> None:
    ids = ("--phone-number-id", "106540352242922", "--waba-id", "102290129340398", "--unchecked")
    secrets = {"TIDINGS_CLOUD_TOKEN": "T0KEN", "TIDINGS_CLOUD_APP_SECRET": "S3CRET"}
    switched = run("number", "upstream", "15550000000", "cloud", *ids, **data, **secrets)
    assert switched.returncode == 0, switched.stderr
    file = tmp_path / "order.json"
    file.write_text('{"name": "order", "language": "en", "components": [{"type": "BODY", "text": "Hi"}]}')
    assert_one_line(run("template", "create", str(file), **data), 1, ".*no Coreapp of 15550000000 runs")
    assert_one_line(run("template", "edit", str(file), **data), 1, ".*there is no template order in en")
    assert_one_line(run("template", "delete", "order", **data), 1, ".*no Coreapp of 15550000000 runs")
    assert_one_line(run("template", "delete", "order", "--namespace", "x", **data), 1, ".*no template order in x")
    for words in (("import", str(EXPORTED)), ("approve", "order")):
        assert_one_line(run("template", *words, **data), 1, ".*those of its WABA at the Cloud API")
    assert run("template", "list", **data).stdout == "0 templates\n"


def test_a_time_to_live_ends_with_its_template(data: dict[str, str], tmp_path: Path) -> None:
    definition = {"name": "order", "language": "en", "namespace": "n", "components": [{"type": "BODY", "text": "Hi"}]}
    file = tmp_path / "order.json"
    file.write_text(json.dumps([definition]))
    order, other = template_id("15550000000", "n", "order", "en"), template_id("15550000000", "n", "other", "en")

    def left_after(action: str, *words: str) -> object:
        """Return the times to live that an action leaves, if both templates had one."""
        with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as database, database:
            row = ("15550000000", "message_send_ttl_seconds", json.dumps({order: 60, other: 90}))
            database.execute("REPLACE INTO cloud_settings (account, kind, content) VALUES (?, ?, ?)", row)
        done = run("template", action, *words, **data)
        assert done.returncode == 0, done.stderr
        with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as database:
            (content,) = database.execute("SELECT content FROM cloud_settings").fetchone()
        return json.loads(content)

    assert left_after("create", str(file)) == {other: 90}
    assert left_after("edit", str(file)) == {order: 60, other: 90}
    assert left_after("import", str(file)) == {order: 60, other: 90}
    assert left_after("delete", "order") == {other: 90}
    assert left_after("import", str(file)) == {other: 90}
