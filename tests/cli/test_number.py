"""`tidings number` adds, lists, pauses and removes numbers."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sqlite3
from pathlib import Path

import pytest

from cli import number_limits
from tests.cli.support import assert_one_line, run
from tests.conftest import DatabaseFactory
from tidings.storage import database_clock
from tidings.storage.database import Connection


@pytest.fixture
def data(tmp_path: Path) -> dict[str, str]:
    """Variables for a data directory with tables."""
    variables = {"TIDINGS_DATA_DIR": str(tmp_path), "TIDINGS_BUSINESS_NUMBER": "15550000000"}
    assert run("migrate", **variables).returncode == 0
    return variables


def test_a_number_is_added_with_an_administrator_paused_resumed_and_removed(data: dict[str, str]) -> None:
    added = run("number", "add", "+15550000001", **data)
    assert added.returncode == 0, added.stderr
    assert "no Coreapp runs, so it is not checked whether a recipient has this number" in added.stdout
    assert "user            admin@15550000001" in added.stdout
    assert re.search(r"first password  \S{20,}  \(shown only now", added.stdout)
    listed = run("number", "list", **data).stdout.splitlines()
    assert listed[0].startswith("15550000000  active, not registered  since 20")
    assert listed[0].endswith("  first")
    assert listed[1].startswith("15550000001  active, not registered  since 20")
    assert listed[2] == "2 of at most 100 numbers"

    assert run("number", "pause", "15550000001", **data).stdout == "15550000001 is paused\n"
    assert "15550000001  paused" in run("number", "list", **data).stdout
    assert run("number", "resume", "15550000001", **data).stdout == "15550000001 is active\n"
    assert run("number", "remove", "15550000001", **data).stdout == "15550000001 is removed\n"
    assert run("number", "list", **data).stdout.splitlines()[-1] == "1 of at most 100 numbers"


def test_numbers_are_listed_as_json(data: dict[str, str], tmp_path: Path) -> None:
    assert run("number", "add", "15550000001", "--waba-of", "15550000000", **data).returncode == 0
    assert run("number", "pause", "15550000001", **data).returncode == 0
    ids = re.findall(r"id (\d{16})  waba (\d{16})  app (\d{16})", run("number", "list", **data).stdout)
    with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as connection:
        connection.execute("UPDATE numbers SET created_at = 1700000000000")
        connection.commit()
    listed = run("number", "list", "--json", **data)
    assert listed.returncode == 0, listed.stderr
    found = json.loads(listed.stdout)
    assert list(found) == ["numbers"]
    for entry, number, state, (phone, waba, app) in zip(
        found["numbers"], ("15550000000", "15550000001"), ("active", "paused"), ids, strict=True
    ):
        assert entry == {
            "number": number,
            "state": state,
            "registered": False,
            "upstream": "network",
            "created_at": "2023-11-14T22:13:20Z",
            "phone_number_id": phone,
            "waba_id": waba,
            "app_id": app,
            "first": number == "15550000000",
        }


def test_a_removed_number_leaves_no_subscription_to_webhooks(data: dict[str, str], tmp_path: Path) -> None:
    assert run("number", "add", "15550000001", **data).returncode == 0
    listed = run("number", "list", **data).stdout
    wabas = re.findall(r"waba (\d{16})", listed)
    assert len(set(wabas)) == 2
    with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as connection:
        for waba, app in re.findall(r"waba (\d{16})  app (\d{16})", listed):
            connection.execute("INSERT INTO cloud_subscriptions VALUES (?, ?, 1)", (waba, app))
        connection.commit()
        assert run("number", "remove", "15550000001", **data).returncode == 0
        assert connection.execute("SELECT waba_id FROM cloud_subscriptions").fetchall() == [(wabas[0],)]


def test_wrong_numbers_are_refused_in_one_line(data: dict[str, str]) -> None:
    for wrong in ("123456", "1234567890123456", "0049301234567", "1555000000x", "١٥٥٥٠٠٠٠٠٠١"):
        assert_one_line(run("number", "add", wrong, **data), 1, ".*is not a number: give country code and number")
    assert run("number", "add", "15550000001", **data).returncode == 0
    for twice in ("15550000000", "15550000001"):
        failed = run("number", "add", twice, **data)
        assert failed.returncode == 1
        assert f"{twice} is a number of this installation already" in failed.stderr
    assert_one_line(run("number", "remove", "15550000000", **data), 1, ".*TIDINGS_BUSINESS_NUMBER names")
    assert_one_line(run("number", "pause", "15550000002", **data), 1, ".*is not a number of this installation")


def test_templates_and_webhook_secrets_of_a_further_number_are_its_own(data: dict[str, str], tmp_path: Path) -> None:
    assert run("number", "add", "15550000001", **data).returncode == 0
    template = tmp_path / "template.json"
    template.write_text(
        '{"name": "hello", "language": "en", "category": "UTILITY", "components": [{"type": "BODY", "text": "Hello"}]}'
    )
    created = run("template", "create", "--number", "+15550000001", str(template), **data)
    assert created.returncode == 0, created.stderr
    assert run("template", "list", **data).stdout == "0 templates\n"
    assert run("template", "list", "--number", "15550000001", **data).stdout.endswith("1 template\n")
    assert run("webhook-secret", "rotate", "--number", "15550000001", **data).returncode == 0
    assert len(run("webhook-secret", "show", **data).stdout.splitlines()) == 1
    assert len(run("webhook-secret", "show", "--number", "15550000001", **data).stdout.splitlines()) == 2
    secrets = {run("webhook-secret", "cloud", *words, **data).stdout for words in ((), ("--number", "15550000001"))}
    assert len(secrets) == 2
    for command in (("template", "list"), ("webhook-secret", "show"), ("webhook-secret", "cloud")):
        assert_one_line(run(*command, "--number", "15550000009", **data), 1, ".*is not a number of this installation")


def test_numbers_share_a_waba_with_its_app_and_templates(data: dict[str, str], tmp_path: Path) -> None:
    for number, more in (("15550000001", ()), ("15550000002", ("--waba-of", "+15550000001"))):
        added = run("number", "add", number, *more, **data)
        assert added.returncode == 0, added.stderr
    listed = run("number", "list", **data).stdout.splitlines()
    first, second, third = (re.search(r"id (\d{16})  waba (\d{16})  app (\d{16})", line) for line in listed[:3])
    assert first is not None
    assert second is not None
    assert third is not None
    assert second.groups()[1:] == third.groups()[1:] != first.groups()[1:]
    assert second[1] != third[1]
    template = tmp_path / "template.json"
    template.write_text(
        '{"name": "hello", "language": "en", "category": "UTILITY", "components": [{"type": "BODY", "text": "Hello"}]}'
    )
    assert run("template", "create", "--number", "15550000002", str(template), **data).returncode == 0
    assert run("template", "list", "--number", "15550000001", **data).stdout.endswith("1 template\n")
    secrets = [run("webhook-secret", "cloud", "--number", f"1555000000{n}", **data).stdout for n in (0, 1, 2)]
    assert secrets[1] == secrets[2] != secrets[0]

    assert_one_line(
        run("number", "add", "15550000003", "--waba-of", "15550000009", **data), 1, ".*--waba-of: 15550000009"
    )
    failed = run("number", "remove", "15550000001", **data)
    assert_one_line(failed, 1, ".*15550000002 share the WABA of 15550000001: remove them first")
    assert run("number", "remove", "15550000002", **data).returncode == 0
    assert run("template", "list", "--number", "15550000001", **data).stdout.endswith("1 template\n")
    assert run("number", "remove", "15550000001", **data).returncode == 0


def test_the_subscription_of_a_shared_waba_outlives_a_number_that_shares_it(
    data: dict[str, str], tmp_path: Path
) -> None:
    assert run("number", "add", "15550000001", "--waba-of", "15550000000", **data).returncode == 0
    (waba, app), _ = re.findall(r"waba (\d{16})  app (\d{16})", run("number", "list", **data).stdout)
    with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as connection:
        connection.execute("INSERT INTO cloud_subscriptions VALUES (?, ?, 1)", (waba, app))
        connection.commit()
        assert run("number", "remove", "15550000001", **data).returncode == 0
        assert connection.execute("SELECT waba_id FROM cloud_subscriptions").fetchall() == [(waba,)]


def test_the_messaging_limit_of_a_number_is_shown_and_changed(data: dict[str, str]) -> None:
    first = "15550000000"
    assert "messaging   default (TIDINGS_CLOUD_MESSAGING_TIER)\n" in run("number", "limits", first, **data).stdout
    changed = run("number", "limits", f"+{first}", "--messaging", "TIER_250", **data)
    assert changed.returncode == 0, changed.stderr
    assert "messaging   TIER_250\n" in changed.stdout
    assert "messaging   TIER_250\n" in run("number", "limits", first, **data).stdout
    assert "messaging   default" in run("number", "limits", first, "--messaging", "default", **data).stdout
    assert run("number", "limits", first, "--messaging", "TIER_7", **data).returncode == 2
    assert_one_line(run("number", "limits", "15550000002", **data), 1, ".*is not a number of this installation")


def test_numbers_of_a_waba_have_one_messaging_limit(data: dict[str, str], tmp_path: Path) -> None:
    first, second = "15550000000", "15550000001"
    assert run("number", "limits", first, "--messaging", "TIER_2K", **data).returncode == 0
    assert run("number", "add", second, "--waba-of", first, **data).returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as connection:
        query = "SELECT announced_tier FROM cloud_limits WHERE account = ?"
        assert connection.execute(query, (second,)).fetchall() == [("TIER_2K",)]
    assert "messaging   TIER_2K, with 15550000000\n" in run("number", "limits", second, **data).stdout
    changed = run("number", "limits", second, "--messaging", "TIER_250", "--test", "on", **data)
    assert "messaging   TIER_250, with 15550000000\n" in changed.stdout
    shown = run("number", "limits", first, **data).stdout
    assert "messaging   TIER_250\n" in shown
    assert "test mode   off\n" in shown


def test_test_recipients_are_added_listed_and_removed(data: dict[str, str]) -> None:
    command = ("number", "recipients", "15550000000")
    assert run(*command, **data).stdout == "0 of at most 5 test recipients\n"
    for n in range(5):
        added = run(*command, "--add", f"+1 555 011-000{n}", **data)
        assert added.returncode == 0, added.stderr
    assert added.stdout.splitlines() == [*(f"1555011000{n}" for n in range(5)), "5 of at most 5 test recipients"]
    assert_one_line(run(*command, "--add", "15550110009", **data), 1, ".*has 5 test recipients, which is the limit")
    assert_one_line(run(*command, "--remove", "15550110009", **data), 1, ".*15550110009 is no test recipient of")
    changed = run(*command, "--remove", "15550110000", "--add", "15550110009", **data)
    assert changed.stdout.splitlines()[-2:] == ["15550110009", "5 of at most 5 test recipients"]
    assert_one_line(run(*command, "--add", "x", **data), 1, ".*is no phone number")
    assert "test mode   on\n" in run("number", "limits", "15550000000", "--test", "on", **data).stdout
    assert "test mode   off\n" in run("number", "limits", "15550000000", "--test", "off", **data).stdout


def test_the_throughput_of_a_number_is_raised_once(data: dict[str, str]) -> None:
    command = ("number", "limits", "15550000000")
    assert "throughput  standard\n" in run(*command, **data).stdout
    raised = run(*command, "--throughput", "high", **data)
    assert re.search(r"throughput  high, upgrade until 20\d\d-\d\d-\d\d", raised.stdout)
    assert run(*command, "--throughput", "high", "--upgrade-seconds", "0", **data).stdout == raised.stdout
    assert "throughput  standard\n" in run(*command, "--throughput", "standard", **data).stdout
    assert run(*command, "--throughput", "high", "--upgrade-seconds", "61", **data).returncode == 2
    for options in ((), ("--throughput", "standard")):
        refused = run(*command, "--upgrade-seconds", "5", *options, **data)
        assert_one_line(refused, 1, ".*--upgrade-seconds has an effect only together with --throughput high")


async def test_an_upgrade_ends_by_the_clock_of_the_database(
    database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def now(connection: Connection) -> int:
        return 1_700_000_000_900

    monkeypatch.setattr(database_clock, "read", now)
    parser = argparse.ArgumentParser()
    number_limits.add_arguments(parser)
    options = parser.parse_args(["15550000000", "--throughput", "high", "--upgrade-seconds", "30"])
    await number_limits.run(await database_factory("business"), "15550000000", options)
    assert "throughput  high, upgrade until 2023-11-14T22:13:50Z" in capsys.readouterr().out
