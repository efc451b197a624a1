"""The printed SQL creates users with the privileges that the processes need, and no others."""

from __future__ import annotations

import argparse
import re

import pymysql
import pytest

from cli.commands import database
from harness.mariadb import MariaDB


def test_the_printed_statements_make_schemas_and_users(
    mariadb: MariaDB, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WA_DB_NAME_PREFIX", "sql_")
    assert database.run(argparse.Namespace(action="sql", host="%", without_tls=True)) == 0
    printed = capsys.readouterr().out
    found = dict(re.findall(r"WA_DB_USERNAME=(\S+) WA_DB_PASSWORD=(\S+)", printed))
    assert set(found) == {"sql_business", "sql_network", "sql_migrate"}
    with mariadb.connect() as administrator, administrator.cursor() as cursor:
        # Executed twice, as by an administrator who is not sure.
        for statement in [line for line in printed.splitlines() if not line.startswith("--")] * 2:
            cursor.execute(statement)
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
    finally:
        with mariadb.connect() as administrator, administrator.cursor() as cursor:
            for name in ("business", "network"):
                cursor.execute(f"DROP DATABASE sql_{name}")
            for name in found:
                cursor.execute(f"DROP USER '{name}'@'%'")


def test_users_must_come_over_tls_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    database.run(argparse.Namespace(action="sql", host="10.1.%", without_tls=False))
    created = [line for line in capsys.readouterr().out.splitlines() if line.startswith("CREATE USER")]
    assert len(created) == 3
    assert all("@'10.1.%' " in line and line.endswith(" REQUIRE SSL;") for line in created)
