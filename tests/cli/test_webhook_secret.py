"""`tidings webhook-secret` shows, rotates and retires the secrets that sign callbacks."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cli.commands import webhook_secret
from coreapp.webhook_secrets import WebhookSecrets
from tests import migrated
from tests.cli.support import assert_one_line, run
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.installation.settings import DatabaseSettings
from tidings.storage.database import Connection, Database

FIRST = "whsec_" + "QUJD" * 8
OTHER = "whsec_" + "REVG" * 8


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    found = {"TIDINGS_DATA_DIR": str(tmp_path / "data"), "TIDINGS_WEBHOOK_SECRET": FIRST}
    assert run("migrate", **found).returncode == 0
    return found


def shown(variables: dict[str, str]) -> list[list[str]]:
    done = run("webhook-secret", "show", **variables)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def test_a_rotation_creates_a_secret_and_keeps_the_previous_one_for_a_time(variables: dict[str, str]) -> None:
    assert shown(variables) == [[FIRST, "current"]]
    done = run("webhook-secret", "rotate", "--keep", "2", **variables)
    assert done.returncode == 0, done.stderr
    fresh, before = shown(variables)
    assert fresh[0].startswith("whsec_")
    assert fresh[1] == "current"
    assert before[:2] == [FIRST, "until"]
    assert fresh[0] in done.stdout
    assert_one_line(
        run("webhook-secret", "rotate", **variables), 1, "tidings webhook-secret: the previous secret still"
    )
    assert run("webhook-secret", "retire", **variables).returncode == 0
    assert shown(variables) == [fresh]


def test_a_rotation_can_read_the_new_secret_from_a_file(variables: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(OTHER + "\n")
    assert run("webhook-secret", "rotate", "--from-file", str(file), **variables).returncode == 0
    assert shown(variables)[0] == [OTHER, "current"]
    file.write_text("whsec_AAAA")
    for wrong, words in ((file, "24 to 64 bytes"), (tmp_path / "none", "No such file")):
        done = run("webhook-secret", "rotate", "--from-file", str(wrong), **variables)
        assert_one_line(done, 1, "tidings webhook-secret: ")
        assert words in done.stderr


def test_secrets_of_another_settings_key_are_not_replaced(variables: dict[str, str]) -> None:
    assert run("webhook-secret", "rotate", **variables).returncode == 0
    done = run("webhook-secret", "retire", **variables, TIDINGS_SETTINGS_KEY="ab" * 32)
    assert_one_line(done, 1, "tidings webhook-secret: ")
    assert len(shown(variables)) == 2


def test_the_app_secret_of_the_cloud_api_is_printed_and_no_rotation_changes_it(variables: dict[str, str]) -> None:
    first = run("webhook-secret", "cloud", **variables)
    assert re.fullmatch(r"[0-9a-f]{32}\n", first.stdout), first.stderr
    assert run("webhook-secret", "rotate", **variables).returncode == 0
    assert run("webhook-secret", "cloud", **variables).stdout == first.stdout
    other = run("webhook-secret", "cloud", **variables | {"TIDINGS_BUSINESS_NUMBER": "15550000001"})
    assert other.stdout != first.stdout


class LostResponseOnce(Database):
    """Database whose first commit succeeds, and whose response is lost."""

    is_lost = False

    @contextlib.asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[Connection]:
        async with super().transaction(**options) as connection:
            yield connection
        if not self.is_lost:
            self.is_lost = True
            raise ConnectionError("lost after the commit")


async def test_a_rotation_whose_commit_got_no_response_succeeds(tmp_path: Path) -> None:
    await migrated.create_sqlite(tmp_path / "business.db", "business")
    database = LostResponseOnce(DatabaseSettings(f"sqlite+aiosqlite:///{tmp_path}/business.db"), "business")
    kept = WebhookSecrets("15550000000", FIRST, SecretSealer(bytes(32)))
    options = argparse.Namespace(keep=24.0, from_file=None)
    try:
        found = await webhook_secret._change(database, kept, webhook_secret._rotation(options))
        assert len(found) == 2
    finally:
        await database.close()
