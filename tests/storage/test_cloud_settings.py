"""Guarantees of the table of settings of the Cloud API."""

from __future__ import annotations

from tests.conftest import DatabaseFactory
from tidings.storage.business import cloud_settings
from tidings.storage.business.cloud_settings import CloudSettingsRow

ACCOUNT = "15550000000"


async def test_settings_of_a_kind_are_replaced_as_a_whole(database_factory: DatabaseFactory) -> None:
    database = await database_factory("business")
    async with database.transaction() as connection:
        assert await cloud_settings.find(connection, ACCOUNT, "settings") == {}
        assert not await cloud_settings.shows_identity(connection, ACCOUNT)
        for content in ({"a": ["\U0001f44b"]}, {"user_identity_change": {"enable_identity_key_check": True}}):
            await cloud_settings.put(connection, CloudSettingsRow(ACCOUNT, "settings", content))
            assert await cloud_settings.find(connection, ACCOUNT, "settings") == content
        assert await cloud_settings.shows_identity(connection, ACCOUNT)
        assert await cloud_settings.find(connection, ACCOUNT, "whatsapp_commerce_settings") == {}
        assert await cloud_settings.find(connection, "15550000001", "settings") == {}
