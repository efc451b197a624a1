"""The printed SQL creates users with the privileges that the processes need, and no others."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from cli.commands import database
from cli.guard import CommandFailure
from harness.mariadb import MariaDB


def test_the_printed_statements_create_schemas_and_users(
    mariadb: MariaDB, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WA_DB_NAME_PREFIX", "sql_")
    assert database.run(argparse.Namespace(action="sql", host="%", without_tls=True)) == 0
    printed = capsys.readouterr().out
    found = dict(re.findall(r"WA_DB_USERNAME=(\S+) WA_DB_PASSWORD=(\S+)", printed))
    assert set(found) == {"sql_business", "sql_network", "sql_migrate"}
    with mariadb.connect() as administrator, administrator.cursor() as cursor:
        # Executed twice: the statements can be repeated.
        for statement in [line for line in printed.splitlines() if not line.startswith("--")] * 2:
            cursor.execute(statement)
        cursor.execute("CREATE DATABASE sqlxbusiness")
        cursor.execute("CREATE TABLE sqlxbusiness.probe (id INT PRIMARY KEY)")
    try:
        with mariadb.connect(user="sql_migrate", password=found["sql_migrate"]) as migrate, migrate.cursor() as cursor:
            cursor.execute("CREATE TABLE sql_business.probe (id INT PRIMARY KEY)")
            cursor.execute("CREATE TABLE sql_network.probe (id INT PRIMARY KEY)")
        with (
            mariadb.connect(user="sql_business", password=found["sql_business"]) as business,
            business.cursor() as cursor,
        ):
            cursor.execute("INSERT INTO sql_business.probe VALUES (1)")
            with pytest.raises(pymysql.err.OperationalError, match="denied"):
                cursor.execute("SELECT * FROM sql_network.probe")
            with pytest.raises(pymysql.err.OperationalError, match="denied"):
                cursor.execute("DROP TABLE sql_business.probe")
            # An underscore in a GRANT would match any character, and so the schema of another installation.
            with pytest.raises(pymysql.err.OperationalError, match="denied"):
                cursor.execute("SELECT * FROM sqlxbusiness.probe")
    finally:
        with mariadb.connect() as administrator, administrator.cursor() as cursor:
            for name in ("business", "network"):
                cursor.execute(f"DROP DATABASE sql_{name}")
            cursor.execute("DROP DATABASE sqlxbusiness")
            for name in found:
                cursor.execute(f"DROP USER '{name}'@'%'")


def test_users_require_tls_unless_configured_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    database.run(argparse.Namespace(action="sql", host="10.1.%", without_tls=False))
    created = [line for line in capsys.readouterr().out.splitlines() if line.startswith("CREATE USER")]
    assert len(created) == 3
    assert all("@'10.1.%' " in line and line.endswith(" REQUIRE SSL;") for line in created)


@pytest.mark.parametrize("character", ["\n", "\r", "\x0b", "\x1c", "\x85", "\u2028"])
def test_a_password_with_a_line_break_is_refused(character: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(database.PASSWORDS["business"], f"the first{character}the second")
    with pytest.raises(CommandFailure, match="must not contain line breaks") as refused:
        database.run(argparse.Namespace(action="sql", host="%", without_tls=True))
    assert "the first" not in str(refused.value)


GIVEN = {"business": "a'b\\c%d", "network": "of the network", "migrate": "of migrations"}


@pytest.fixture
def administrator(mariadb: MariaDB, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Set variables for the test's server and passwords, and drop the created users and schemas afterwards."""
    variables = {
        "TIDINGS_DATA_DIR": str(tmp_path),
        "WA_DB_NAME_PREFIX": "made_",
        "TIDINGS_BUSINESS_DB_URL": mariadb.url("unused"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    for role, variable in database.PASSWORDS.items():
        monkeypatch.setenv(variable, GIVEN[role])
    yield
    with mariadb.connect() as connection, connection.cursor() as cursor:
        for name in ("business", "network"):
            cursor.execute(f"DROP DATABASE IF EXISTS made_{name}")
        for name in GIVEN:
            cursor.execute(f"DROP USER IF EXISTS 'made_{name}'@'%'")


def make() -> int:
    return database.run(argparse.Namespace(action="users", host="%", without_tls=True))


@pytest.mark.usefixtures("administrator")
def test_users_are_created_with_privileges_and_passwords_repeatably(
    mariadb: MariaDB, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make() == 0
    monkeypatch.setenv("TIDINGS_NETWORK_DB_PASSWORD", "another one")
    assert make() == 0
    printed = capsys.readouterr()
    assert "made_business, made_migrate, made_network" in printed.out
    assert not [password for password in (*GIVEN.values(), "another one") if password in printed.out + printed.err]
    for role, password in ({**GIVEN, "network": "another one"}).items():
        with mariadb.connect(user=f"made_{role}", password=password) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW DATABASES")
            seen = {name for (name,) in cursor.fetchall() if name.startswith("made_")}
        expected = {"made_business", "made_network"} if role == "migrate" else {f"made_{role}"}
        assert seen == expected
    with pytest.raises(pymysql.err.OperationalError, match="denied"):
        mariadb.connect(user="made_network", password=GIVEN["network"])


@pytest.mark.usefixtures("administrator")
def test_a_missing_password_is_named_and_errors_contain_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDINGS_MIGRATE_DB_PASSWORD")
    with pytest.raises(CommandFailure, match="TIDINGS_MIGRATE_DB_PASSWORD: set the password"):
        make()
    monkeypatch.setenv("TIDINGS_MIGRATE_DB_PASSWORD", GIVEN["migrate"])
    # A schema name that is too long for any server.
    monkeypatch.setenv("WA_DB_NAME_PREFIX", "x" * 90)
    with pytest.raises(CommandFailure, match="refuses to create schemas and users") as raised:
        make()
    assert not [password for password in GIVEN.values() if password in str(raised.value)]


def test_sqlite_has_no_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIDINGS_DATA_DIR", str(tmp_path))
    for variable in database.PASSWORDS.values():
        monkeypatch.setenv(variable, "given")
    with pytest.raises(CommandFailure, match="SQLite has no users"):
        make()


def test_printed_statements_contain_the_given_passwords(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDINGS_NETWORK_DB_PASSWORD", "of the network")
    database.run(argparse.Namespace(action="sql", host="%", without_tls=False))
    printed = capsys.readouterr().out
    assert "'tidings_network'@'%' IDENTIFIED BY 'of the network' REQUIRE SSL;" in printed
    assert len(set(re.findall(r"IDENTIFIED BY '([^']+)'", printed))) == 3
