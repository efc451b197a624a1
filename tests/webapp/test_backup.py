"""`/v1/settings/backup` and `/v1/settings/restore`: a backup restores every setting."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.authority import NOW, Authority
from tests.manual_clock import ManualClock
from tests.webapp.backups import (
    ACCOUNT,
    AUTHORITY,
    BACKUP,
    PACK,
    PASSWORD,
    PNG,
    RESTORE,
    STICKER,
    backup,
    changed,
    everything,
    fill,
    packed,
    restore,
    settings,
    wipe,
)
from tests.webapp.conftest import Serve, Served, code, make_secrets
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import check_is_for_administrators
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import ONLY_PUBLIC
from tidings.secrets import password_box
from tidings.secrets.process_secrets import SecretKeys
from tidings.storage.business import (
    application_settings,
    certificates,
    layouts,
    media_providers,
    profiles,
    registrations,
    stickerpacks,
)
from tidings.storage.business.media_providers import MediaProviderRow
from tidings.storage.business.profiles import Photo, StoredProfile
from tidings.storage.business.stickerpacks import Pack, Sticker
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.backup import contents
from webapp.api.backup.service import Backups
from webapp.api.users.passwords import Hasher
from webapp.auth.tokens import Caller
from webapp.http.errors import InvalidRequest

META = {"version": "2.57.2", "api_status": "stable"}
# A document with a distinct value for every setting.
SETTINGS: dict[str, Any] = {
    "callback_persist": False,
    "callback_backoff_delay_ms": 1,
    "max_callback_backoff_delay_ms": 86_400_000,
    "webhooks": {
        "url": "https://example.com/hook",
        "max_concurrent_requests": 24,
        "message": {"sent": True, "delivered": False, "read": False},
        "max_statuses_per_post": 50,
    },
    "sent_status": True,
    "pass_through": True,
    "media": {"auto_download": []},
    "garbagecollector_enable": {"messages": False, "media": True},
    "heartbeat_interval": 6,
    "unhealthy_interval": 31,
    "axolotl_context_striping_disabled": True,
    "notify_user_change_number": False,
    "show_security_notifications": True,
    "skip_referral_media_download": True,
    "webhook_payload_conversation_pricingmodel_disabled": True,
    "on_call_pager": "pager",
    "verbose_logging": True,
    "log_level": "debug",
}


async def test_a_restore_returns_every_setting_and_the_keys(api: Served, coreapp: FakeCoreapp) -> None:
    await fill(api)
    before = await everything(api)
    data = await backup(api)
    await wipe(api)
    assert await everything(api) != before
    response = await restore(api, data)
    assert (response.status_code, response.json()) == (200, {"meta": META})
    assert await everything(api) == before
    [request] = coreapp.requested(core.RestoreKeys)
    assert (request.account, request.password, request.data) == (
        "15550000000",
        PASSWORD,
        "the keys of 15550000000",
    )
    assert coreapp.requested(core.SettingsChanged)
    shards = {"cc": "1", "phone_number": "5550000000", "shards": 1}
    assert code(await api.http.post("/v1/account/shards", json=shards)) == (400, 1008), "the PIN is demanded again"


async def test_a_backup_can_be_restored_under_another_settings_key(api: Served, serve: Serve) -> None:
    await fill(api)
    before = await everything(api)
    data = await backup(api)
    other = await serve(secrets=dataclasses.replace(make_secrets(), settings_key=SecretKeys.of(b"n" * 32)))
    await other.log_in()
    await wipe(other)
    assert (await restore(other, data)).status_code == 200
    assert await everything(other) == before


async def test_a_restore_requests_the_number_of_shards_that_was_in_use(api: Served, database: Database) -> None:
    async def wanted() -> int:
        async with database.reading() as connection:
            layout = await layouts.find(connection)
        return layout.wanted or layout.shards

    async with database.transaction() as connection:
        # `TIDINGS_SHARDS` has set it.
        await layouts.create(connection, 4)
    data = await backup(api)
    async with database.transaction() as connection:
        await layouts.request(connection, 8)
    assert (await restore(api, data)).status_code == 200
    assert await wanted() == 4


async def test_a_backup_of_an_earlier_release_changes_the_number_of_shards_only_where_it_was_set(
    api: Served, database: Database
) -> None:
    async with database.transaction() as connection:
        await layouts.create(connection, 8)
    for shards, wanted in ((1, 8), (4, 4)):
        # An earlier release wrote 1 unless `POST /v1/account/shards` had set it.
        assert (await restore(api, await changed(api, shards=shards, has_shards_in_use=False))).status_code == 200
        async with database.reading() as connection:
            layout = await layouts.find(connection)
        assert (layout.wanted or layout.shards) == wanted


async def test_a_restore_leaves_users_and_tokens_unchanged(api: Served) -> None:
    data = await backup(api)
    await api.http.post("/v1/users", json={"username": "observer", "password": "Tidings-2026!"})
    assert (await restore(api, data)).status_code == 200
    assert [user["username"] for user in (await api.http.get("/v1/users")).json()["users"]] == ["admin", "observer"]


async def test_a_backup_is_encrypted_base64_and_different_each_time(api: Served) -> None:
    await fill(api)
    data = await backup(api)
    raw = base64.b64decode(data, validate=True)
    assert b"Example" not in raw
    assert data != await backup(api)


async def test_every_setting_survives_a_backup(api: Served) -> None:
    assert (await api.http.patch("/v1/settings/application", json=SETTINGS)).status_code == 200
    before = (await api.http.get("/v1/settings/application")).json()
    data = await backup(api)
    await wipe(api)
    assert (await restore(api, data)).status_code == 200
    after = (await api.http.get("/v1/settings/application")).json()
    assert after == before
    assert after["settings"]["application"] == SETTINGS | {"wa_id": ACCOUNT}


async def test_unknown_settings_of_other_versions_are_ignored(api: Served) -> None:
    data = await changed(api, settings=settings(of_another_version={"x": [1]}, log_level="debug"))
    assert (await restore(api, data)).status_code == 200
    found = (await api.http.get("/v1/settings/application")).json()["settings"]["application"]
    assert found["log_level"] == "debug"
    assert "of_another_version" not in found


async def test_a_restore_skips_an_expired_certificate_and_keeps_the_current_one(
    api: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(api)
    before = await everything(api)
    data = await changed(api, external=packed(Authority("Another").bundle("localhost", days=-1)))
    await wipe(api)
    with caplog.at_level("WARNING"):
        assert (await restore(api, data)).status_code == 200
    assert await everything(api) == before
    assert "backup.certificate_left_out" in caplog.messages


class Coreapps:
    """Coreapps that accept every key."""

    def of(self, account: str) -> Coreapps:
        return self

    async def call_primary(self, make: Callable[[int], Any], expect: type[Any]) -> Any:
        return core.Done(n=1)

    async def call_primary_repeatable(self, make: Callable[[int], Any], expect: type[Any]) -> Any:
        return core.Exported(n=1, data="keys")

    async def call_all(self, make: Callable[[int], Any], expect: type[Any], *, timeout: float) -> list[Any]:
        return []


@pytest.mark.parametrize("database_engine", ["sqlite", "mariadb"])
async def test_every_database_restores_a_backup_unchanged(database: Database, database_engine: str) -> None:
    safe, caller = SecretSealer(b"s" * 32), Caller("admin", ACCOUNT, "ADMIN", "", "", 0)
    backups = Backups(
        database, Coreapps(), safe=safe, guard=EgressGuard(ONLY_PUBLIC), clock=ManualClock(NOW.timestamp())
    )
    hasher = Hasher(memory_kib=64)
    try:
        pin_hash = await hasher.hash("123456")
    finally:
        hasher.close()
    config = safe.seal(ACCOUNT, "provider:files", b"{}")
    async with database.transaction() as connection:
        await registrations.set_shards(connection, ACCOUNT, 4)
        await registrations.set_pin_hash(connection, ACCOUNT, pin_hash)
        await application_settings.change_settings(connection, ACCOUNT, SETTINGS)
        await profiles.set_about(connection, ACCOUNT, "about us 🎉")
        await profiles.set_business(connection, ACCOUNT, StoredProfile("1 Example Street", websites=("https://x.y",)))
        await profiles.set_photo(connection, ACCOUNT, Photo("image/png", PNG))
        await certificates.set_certificate(connection, ACCOUNT, certificates.WEBHOOK_CA, AUTHORITY.pem)
        await stickerpacks.put_pack(
            connection, Pack(PACK, ACCOUNT, "Tidings", "Cats"), [Sticker(PACK, 7, STICKER, ("🎉",))]
        )
        before = await contents.read(connection, safe, ACCOUNT, "keys")
    data = await backups.make(caller, PASSWORD)
    async with database.transaction() as connection:
        await media_providers.save_providers(connection, [MediaProviderRow(ACCOUNT, "files", "www", config)])
        await application_settings.reset_settings(connection, ACCOUNT)
        await certificates.delete_certificate(connection, ACCOUNT, certificates.WEBHOOK_CA)
        await stickerpacks.delete_packs(connection, ACCOUNT)
        await profiles.set_photo(connection, ACCOUNT, None)
        await registrations.set_pin_hash(connection, ACCOUNT, "")
    await backups.restore(caller, PASSWORD, data)
    async with database.reading() as connection:
        assert await contents.read(connection, safe, ACCOUNT, "keys") == before
    whole = msgspec.json.decode(password_box.open_box(PASSWORD, data, purpose="tidings backup"))
    for wrong in ({"shards": 10**12}, {"webhook_ca": packed(b"garbage")}, {"pin_hash": "x" * 300}):
        sealed = password_box.seal(PASSWORD, msgspec.json.encode(whole | wrong), purpose="tidings backup")
        with pytest.raises(InvalidRequest, match="data: "):
            await backups.restore(caller, PASSWORD, sealed)
    async with database.reading() as connection:
        assert await contents.read(connection, safe, ACCOUNT, "keys") == before


@pytest.mark.parametrize("path", [BACKUP, RESTORE])
async def test_backups_require_an_administrator(api: Served, path: str) -> None:
    await check_is_for_administrators(api, "POST", path)


async def test_a_new_backup_needs_8_password_characters_but_old_ones_open_with_fewer(
    api: Served,
) -> None:
    assert code(await api.http.post(BACKUP, json={"password": "seven77"})) == (400, 1009)
    assert code(await api.http.post(BACKUP, json={})) == (400, 1008)
    content = password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup")
    old = password_box.seal("short", content, purpose="tidings backup")
    assert (await restore(api, old, "short")).status_code == 200


async def test_a_profile_with_the_longest_description_of_the_cloud_api_is_restored(
    serve: Serve, coreapp: FakeCoreapp
) -> None:
    api = await serve(cloud_api=True)
    await api.log_in()
    await coreapp.until(lambda: coreapp.greetings > 0)
    profile = {"messaging_product": "whatsapp", "description": "x" * 512}
    response = await api.http.post("/1393060602093303/whatsapp_business_profile", json=profile)
    assert response.status_code == 200, response.text
    data = await backup(api)
    response = await restore(api, data)
    assert response.status_code == 200, response.text


async def test_the_headers_of_the_webhook_are_restored(api: Served) -> None:
    headers = {"Authorization": "Basic dTpw", "X-Shop": "7"}
    data = await changed(api, settings=settings(webhooks={"url": "https://example.com/"}), webhook_headers=headers)
    assert (await restore(api, data)).status_code == 200
    data = await backup(api)
    await api.http.delete("/v1/settings/application")
    assert (await restore(api, data)).status_code == 200
    found = (await api.http.get("/v1/settings/application")).json()["settings"]["application"]
    assert found["webhooks"]["url"] == "https://example.com/"
    content = password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup")
    assert msgspec.json.decode(content)["webhook_headers"] == headers


async def test_a_backup_with_headers_that_callbacks_have_already_is_refused(api: Served) -> None:
    data = await changed(api, webhook_headers={"Host": "example.com"})
    response = await restore(api, data)
    assert code(response) == (400, 1009)
    assert "data: webhook_headers: should be names and values" in response.text
