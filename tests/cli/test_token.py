"""`tidings token create --d360` prints a token that a Webapp with the same secrets accepts."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from pathlib import Path

import jwt
import pytest

from tests.cli.support import assert_one_line, run

JWT_KEY = "j" * 32


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Variables of an installation with a user whose first password was changed, and one for whom it was not."""
    found = {"TIDINGS_DATA_DIR": str(tmp_path), "WA_WEB_JWT_CRYPTO_KEY": JWT_KEY}
    assert run("migrate", **found).returncode == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "business.db")) as connection, connection:
        for name, must_change in (("shop", 0), ("admin", 1)):
            connection.execute(
                "INSERT INTO users (username, account, role, password_hash, must_change_password, created_at,"
                " generation) VALUES (?, '15550000000', 'user', 'x', ?, 1, 0)",
                (name, must_change),
            )
    return found


def test_the_key_is_a_token_of_the_user_for_the_given_days(variables: dict[str, str]) -> None:
    done = run("token", "create", "--d360", "--user", "shop", "--days", "30", **variables)
    assert done.returncode == 0, done.stderr
    claims = jwt.decode(done.stdout.strip(), JWT_KEY, ["HS256"])
    assert (claims["user"], claims["account"]) == ("shop", "15550000000")
    assert claims["exp"] - claims["iat"] == claims["lifetime"] == 30 * 24 * 3600
    other = run("token", "create", "--d360", "--user", "shop", **variables).stdout
    claims = jwt.decode(other.strip(), JWT_KEY, ["HS256"])
    assert claims["lifetime"] == 3_650 * 24 * 3600


def test_wrong_users_numbers_and_days_are_explained_in_one_line(variables: dict[str, str]) -> None:
    def create(*words: str) -> subprocess.CompletedProcess[str]:
        return run("token", "create", "--d360", *words, **variables)

    assert_one_line(create("--user", "nobody"), 1, "tidings token: 15550000000 has no user nobody$")
    assert_one_line(create(), 1, "tidings token: admin has the first password: log in with new_password first$")
    assert_one_line(create("--user", "shop", "--days", "0"), 1, "tidings token: --days is not a number from 1 to 3650$")
    assert_one_line(create("--user", "shop", "--days", "3651"), 1, "tidings token: --days is not a number")
    assert_one_line(create("--number", "4915550000000"), 1, ".*4915550000000 is not a number of this installation")
    assert run("token", "create", **variables).returncode == 2
