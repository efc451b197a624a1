"""Application settings: values that were set are kept, the others have their defaults."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from tidings.storage.business import application_settings
from tidings.storage.business.application_settings import DEFAULTS, ApplicationSettings
from tidings.storage.database import Database

ACCOUNT = "15550000000"


@pytest.fixture
async def database(database_factory: Callable[[str], Awaitable[Database]]) -> Database:
    return await database_factory("business")


async def change(database: Database, changes: dict[str, Any], account: str = ACCOUNT) -> ApplicationSettings:
    async with database.transaction() as connection:
        return await application_settings.change_settings(connection, account, changes)


async def find(database: Database, account: str = ACCOUNT) -> tuple[ApplicationSettings, int]:
    async with database.reading() as connection:
        table = application_settings.table
        version = (await connection.execute(sa.select(table.c.version).where(table.c.account == account))).scalar()
        return await application_settings.find_settings(connection, account), version or 0


async def test_unset_settings_have_their_defaults(database: Database) -> None:
    assert await find(database) == (DEFAULTS, 0)
    assert DEFAULTS.webhooks.message == application_settings.PostedStatusSettings(sent=False, delivered=True, read=True)


async def test_a_change_keeps_unnamed_settings_at_every_level(database: Database) -> None:
    await change(database, {"webhooks": {"url": "https://example.com/", "message": {"sent": True}}})
    after = await change(database, {"webhooks": {"message": {"read": False}}, "callback_persist": False})
    assert after.webhooks == application_settings.WebhookSettings(
        "https://example.com/", 6, application_settings.PostedStatusSettings(sent=True, delivered=True, read=False)
    )
    assert not after.callback_persist
    assert await find(database) == (after, 2)


async def test_a_list_setting_is_replaced_as_a_whole(database: Database) -> None:
    await change(database, {"media": {"auto_download": ["image", "video"]}})
    assert (await change(database, {"media": {"auto_download": ["voice"]}})).media.auto_download == ("voice",)


async def test_repeating_a_change_gives_the_same_settings(database: Database) -> None:
    once = await change(database, {"heartbeat_interval": 7})
    assert await change(database, {"heartbeat_interval": 7}) == once


async def test_a_reset_increments_the_version(database: Database) -> None:
    await change(database, {"heartbeat_interval": 7})
    async with database.transaction() as connection:
        await application_settings.reset_settings(connection, ACCOUNT)
    assert await find(database) == (DEFAULTS, 2)


async def test_accounts_do_not_share_settings(database: Database) -> None:
    await change(database, {"heartbeat_interval": 7})
    assert await find(database, "15550000001") == (DEFAULTS, 0)


async def test_concurrent_changes_are_all_kept(database: Database) -> None:
    keys = ["heartbeat_interval", "unhealthy_interval", "callback_backoff_delay_ms", "max_callback_backoff_delay_ms"]

    async def persist(key: str) -> None:
        await database.persist(lambda connection: application_settings.change_settings(connection, ACCOUNT, {key: 77}))

    await asyncio.gather(*(persist(key) for key in keys))
    settings, version = await find(database)
    assert [getattr(settings, key) for key in keys] == [77] * 4
    assert version >= 4


async def test_an_invalid_change_is_refused_and_changes_nothing(database: Database) -> None:
    for changes in ({"heartbeat_interval": "soon"}, {"webhooks": {"url": 5}}, {"media": {"auto_download": ["smell"]}}):
        with pytest.raises(msgspec.ValidationError):
            await change(database, changes)
    assert await find(database) == (DEFAULTS, 0)


async def test_unknown_settings_of_a_newer_release_are_kept(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute(
            sa.insert(application_settings.table).values(
                account=ACCOUNT, version=5, document='{"new": {"x": 1}, "pass_through": true}'
            )
        )
    settings, _ = await find(database)
    assert settings.pass_through
    await change(database, {"pass_through": False})
    async with database.reading() as connection:
        document = (await connection.execute(sa.select(application_settings.table.c.document))).scalar_one()
    assert msgspec.json.decode(document)["new"] == {"x": 1}
