"""`/v1/settings/backup` and `/v1/settings/restore`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies

from tests.authority import NOW, Authority
from tests.webapp.conftest import Serve, Served, body, check_headers, code, errors, make_secrets
from tests.webapp.fake_coreapp import FakeCoreapp
from tests.webapp.roles import check_is_for_administrators
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.egress.guard import EgressGuard
from tidings.egress.settings import ONLY_PUBLIC
from tidings.runtime import password_box
from tidings.runtime.clock import ManualClock
from tidings.runtime.process_secrets import SecretKeys
from tidings.storage.business import (
    application_settings,
    certificates,
    media_providers,
    profiles,
    registrations,
    stickerpacks,
)
from tidings.storage.business.media_providers import MediaProvider
from tidings.storage.business.profiles import BusinessProfile, Photo
from tidings.storage.business.stickerpacks import Pack, Sticker
from tidings.storage.database import Database
from tidings.wire import connection as wire
from tidings.wire import core
from webapp.backup import checks, contents
from webapp.backup.contents import Contents
from webapp.backup.service import Backups
from webapp.errors import InvalidRequest
from webapp.tokens import Caller
from webapp.users.passwords import Hasher

BACKUP, RESTORE = "/v1/settings/backup", "/v1/settings/restore"
META = {"version": "2.57.2", "api_status": "stable"}
PASSWORD = "under seal"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(1000)
PACK, STICKER = "583b6a66-dba8-4f80-82cd-15b5b0ae50dd", "0d0e1a6a-38bb-4a7b-9d59-37ba5eee6a5e"
AUTHORITY = Authority()
BUNDLE = AUTHORITY.bundle("localhost")
ACCOUNT = "15550000000"
# A document with a value of its own for every setting.
SETTINGS: dict[str, Any] = {
    "callback_persist": False,
    "callback_backoff_delay_ms": 1,
    "max_callback_backoff_delay_ms": 86_400_000,
    "webhooks": {
        "url": "https://example.com/hook",
        "max_concurrent_requests": 24,
        "message": {"sent": True, "delivered": False, "read": False},
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


MINIMAL: dict[str, Any] = {
    "version": 1,
    "number": ACCOUNT,
    "keys": "keys",
    "shards": 1,
    "pin_hash": "",
    "settings": "{}",
    "about": "",
    "business": {},
    "photo": None,
    "external": None,
    "webhook_ca": None,
    "providers": [],
    "stickerpacks": [],
}


async def backup(api: Served, password: str = PASSWORD) -> str:
    answer = await api.http.post(BACKUP, json={"password": password})
    assert answer.status_code == 200, answer.text
    payload = answer.json()
    assert set(payload) == {"settings", "meta"}
    assert set(payload["settings"]) == {"data"}
    check_headers(answer)
    return str(payload["settings"]["data"])


async def restore(api: Served, data: str, password: str = PASSWORD) -> Any:
    return await api.http.post(RESTORE, json={"password": password, "data": data})


async def fill(api: Served) -> None:
    """Something of everything."""
    for method, path, content in (
        ("PATCH", "/v1/settings/application", {"webhooks": {"url": "https://example.com/"}, "sent_status": True}),
        ("PATCH", "/v1/settings/profile/about", {"text": "about us"}),
        ("POST", "/v1/settings/business/profile", {"address": "1 Example Street", "websites": ["https://example.com"]}),
        ("POST", "/v1/settings/account/two-step", {"pin": "123456"}),
    ):
        assert (await api.http.request(method, path, json=content)).status_code == 200
    pack = await api.http.post("/v1/stickerpacks", json={"publisher": "Tidings", "name": "Cats"})
    stickers = f"/v1/stickerpacks/{pack.json()['stickerpacks'][0]['id']}/stickers"
    for path, given in (
        (stickers, {"image_data_id": STICKER, "emojis": ["🎉"]}),
        (stickers, {"image_data_id": STICKER}),
        ("/v1/settings/application/media/providers", body("media_providers")),
        ("/v1/settings/business/whatsapp_business_encryption", body("business_encryption")["public_key"]),
    ):
        assert (await api.http.post(path, json=given)).status_code in (200, 201)
    for path, sent in (
        ("/v1/settings/profile/photo", PNG),
        ("/v1/certificates/external", BUNDLE),
        ("/v1/certificates/webhooks/ca", AUTHORITY.pem),
    ):
        assert (await api.http.post(path, content=sent)).status_code == 200


async def everything(api: Served) -> list[bytes]:
    paths = [
        "/v1/settings/application",
        "/v1/settings/profile/about",
        "/v1/settings/business/profile",
        "/v1/settings/profile/photo",
        "/v1/settings/application/media/providers",
        "/v1/settings/business/whatsapp_business_encryption",
        "/v1/certificates/external/ca",
        "/v1/certificates/webhooks/ca",
        "/v1/stickerpacks",
    ]
    for pack in (await api.http.get(paths[-1])).json()["stickerpacks"]:
        paths += [f"/v1/stickerpacks/{pack['id']}", f"/v1/stickerpacks/{pack['id']}/stickers"]
    return [(await api.http.get(path)).content for path in paths]


async def changed(api: Served, **parts: Any) -> str:
    """A backup that has been opened, changed and sealed again."""
    content = msgspec.json.decode(password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup"))
    return password_box.seal(PASSWORD, msgspec.json.encode(content | parts), purpose="tidings backup")


def packed(content: bytes) -> str:
    """As bytes are written in a backup."""
    return base64.b64encode(content).decode()


def settings(**changes: Any) -> str:
    return json.dumps(changes)


def provider(**changes: Any) -> list[dict[str, Any]]:
    config = packed(json.dumps(changes.pop("config", {"bearer": "a token"})).encode())
    return [{"name": "files", "kind": "www", "config": config} | changes]


def pack(stickers: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    whole = {"id": PACK, "account": ACCOUNT, "publisher": "Tidings", "name": "Cats"} | changes
    return {"pack": whole, "stickers": stickers or []}


def sticker(**changes: Any) -> dict[str, Any]:
    return {"pack": PACK, "position": 0, "image_data_id": STICKER, "emojis": []} | changes


async def wipe(api: Served) -> None:
    await api.http.delete("/v1/settings/application")
    await api.http.patch("/v1/settings/profile/about", json={"text": "another"})
    await api.http.post("/v1/settings/business/profile", json={})
    await api.http.delete("/v1/settings/profile/photo")
    await api.http.delete("/v1/settings/account/two-step")


async def test_what_was_set_comes_back_with_the_keys(api: Served, coreapp: FakeCoreapp) -> None:
    await fill(api)
    before = await everything(api)
    data = await backup(api)
    await wipe(api)
    assert await everything(api) != before
    answer = await restore(api, data)
    assert (answer.status_code, answer.json()) == (200, {"meta": META})
    assert await everything(api) == before
    [question] = coreapp.asked(core.RestoreKeys)
    assert (question.account, question.password, question.data) == (
        "15550000000",
        PASSWORD,
        "the keys of 15550000000",
    )
    assert coreapp.asked(core.SettingsChanged)
    shards = {"cc": "1", "phone_number": "5550000000", "shards": 1}
    assert code(await api.http.post("/v1/account/shards", json=shards)) == (400, 1008), "the PIN is demanded again"


async def test_an_installation_with_another_settings_key_restores_it(api: Served, serve: Serve) -> None:
    await fill(api)
    before = await everything(api)
    data = await backup(api)
    other = await serve(secrets=dataclasses.replace(make_secrets(), settings_key=SecretKeys.of(b"n" * 32)))
    await other.log_in()
    await wipe(other)
    assert (await restore(other, data)).status_code == 200
    assert await everything(other) == before


async def test_users_and_tokens_stay_as_they_are(api: Served) -> None:
    data = await backup(api)
    await api.http.post("/v1/users", json={"username": "observer", "password": "Tidings-2026!"})
    assert (await restore(api, data)).status_code == 200
    assert [user["username"] for user in (await api.http.get("/v1/users")).json()["users"]] == ["admin", "observer"]


async def test_a_backup_is_base64_without_anything_readable_and_different_each_time(api: Served) -> None:
    await fill(api)
    data = await backup(api)
    raw = base64.b64decode(data, validate=True)
    assert b"Example" not in raw
    assert data != await backup(api)


async def test_a_wrong_password_and_damaged_data_change_nothing(api: Served, coreapp: FakeCoreapp) -> None:
    await fill(api)
    before = await everything(api)
    data = await backup(api)
    damaged = data[:100] + ("A" if data[100] != "A" else "B") + data[101:]
    for content, password, field in (
        (data, "wrong", "password"),
        (damaged, PASSWORD, "password"),
        ("AAAA", PASSWORD, "data"),
        ("not base64", PASSWORD, "data"),
        (password_box.seal(PASSWORD, b"{}", purpose="tidings backup"), PASSWORD, "data"),
    ):
        answer = await restore(api, content, password)
        assert code(answer) == (400, 1009)
        assert errors(answer)[0]["details"].startswith(f"{field}: ")
    assert await everything(api) == before
    assert not coreapp.asked(core.RestoreKeys)


async def test_a_backup_of_another_number_or_version_is_refused(api: Served) -> None:
    content = msgspec.json.decode(password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup"))
    for change, words in (({"number": "15559999999"}, "backup of 15559999999"), ({"version": 2}, "version 2")):
        data = password_box.seal(PASSWORD, msgspec.json.encode(content | change), purpose="tidings backup")
        answer = await restore(api, data)
        assert code(answer) == (400, 1009)
        assert words in errors(answer)[0]["details"]


async def test_a_coreapp_that_says_no_stops_it_before_anything_is_changed(api: Served, coreapp: FakeCoreapp) -> None:
    await fill(api)
    data = await backup(api)
    await wipe(api)
    before = (await api.http.get("/v1/settings/application")).json()
    coreapp.refuse(core.RestoreKeys, 1009, "data: the password is wrong")
    assert code(await restore(api, data)) == (400, 1009)
    assert (await api.http.get("/v1/settings/application")).json() == before
    coreapp.refuse(core.ExportKeys, 1011, "the number is not registered")
    assert code(await api.http.post(BACKUP, json={"password": PASSWORD})) == (503, 1011)


async def test_every_setting_survives_a_backup(api: Served) -> None:
    assert (await api.http.patch("/v1/settings/application", json=SETTINGS)).status_code == 200
    before = (await api.http.get("/v1/settings/application")).json()
    data = await backup(api)
    await wipe(api)
    assert (await restore(api, data)).status_code == 200
    after = (await api.http.get("/v1/settings/application")).json()
    assert after == before
    assert after["settings"]["application"] == SETTINGS | {"wa_id": ACCOUNT}


async def test_settings_of_other_versions_are_passed_over(api: Served) -> None:
    data = await changed(api, settings=settings(of_another_version={"x": [1]}, log_level="debug"))
    assert (await restore(api, data)).status_code == 200
    found = (await api.http.get("/v1/settings/application")).json()["settings"]["application"]
    assert found["log_level"] == "debug"
    assert "of_another_version" not in found


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"settings": "["}, "data: settings: should be JSON"),
        ({"settings": "[" * 100_000}, "data: settings: should be JSON"),
        ({"settings": "[]"}, "data: settings: should be a JSON object"),
        ({"settings": settings(webhooks=5)}, "data: settings.webhooks: should be a JSON object"),
        (
            {"settings": settings(webhooks={"max_concurrent_requests": 100_000_000})},
            "data: settings.webhooks.max_concurrent_requests: should be 6, 12, 18 or 24",
        ),
        ({"settings": settings(webhooks={"url": "ftp://example.com"})}, "data: settings.webhooks.url: should be an ab"),
        ({"settings": settings(callback_backoff_delay_ms=-5)}, "data: settings.callback_backoff_delay_ms: should be"),
        ({"settings": settings(media={"auto_download": {}})}, "data: settings.media.auto_download: should be"),
        ({"settings": settings(log_level="x" * 256)}, "data: settings.log_level: "),
        ({"shards": 3}, "data: shards: should be 1, 2, 4, 8, 16 or 32"),
        ({"shards": 0}, "data: shards: "),
        ({"pin_hash": "x"}, "data: pin_hash: "),
        ({"pin_hash": "$argon2id$v=19$m=99999999999,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g"}, "data: pin_hash: "),
        ({"pin_hash": "$argon2id$v=19$m=8,t=2,p=1$c2FsdHNhbHQ$aGFz" + "x" * 250}, "data: pin_hash: "),
        ({"pin_hash": "$argon2id$v=19$m=8,t=2,p=1$c2FsdHNhbHQ$aGFzä"}, "data: pin_hash: "),
        ({"about": "x" * 140}, "data: about.text: "),
        ({"business": {"websites": ["javascript:1"]}}, "data: business.websites[0]: should begin with http"),
        ({"business": {"email": "x" * 129}}, "data: business.email: "),
        ({"photo": {"type": "text/html", "content": packed(b"<html>")}}, "data: photo: should be a JPEG or PNG image"),
        (
            {"photo": {"type": "image/png", "content": packed(PNG + bytes(5 * 1024 * 1024))}},
            "data: photo: is over the limit of 5242880 bytes",
        ),
        ({"external": packed(b"x")}, "data: external: should begin with a private key in PEM"),
        ({"external": packed(BUNDLE[:-50])}, "data: external: "),
        ({"external": packed(BUNDLE + b"\n" * 262_144)}, "data: external: is over the limit of 262144 bytes"),
        ({"webhook_ca": packed(b"garbage")}, "data: webhook_ca: should be certificates in PEM"),
        ({"webhook_ca": packed("ü".encode())}, "data: webhook_ca: should be certificates in PEM"),
        ({"webhook_ca": packed(b"\xff")}, "data: webhook_ca: should be certificates in PEM"),
        ({"webhook_ca": packed(BUNDLE)}, "data: webhook_ca: should hold certificates only"),
        ({"webhook_ca": packed(b"x" * 262_145)}, "data: webhook_ca: is over the limit of 262144 bytes"),
        ({"flows_key": packed(b"\xff")}, "data: flows_key: should be a public key in PEM"),
        ({"flows_key": packed(b"x" * 5_000)}, "data: flows_key: "),
        ({"providers": provider(config=[])}, "data: providers[0].config: should be a JSON object"),
        ({"providers": provider(config={})}, "data: providers[0].config: should have either basic or bearer"),
        ({"providers": provider() + provider(config=b"{".decode())}, "data: providers[1].config: "),
        ({"providers": provider(name="x\n")}, "data: providers[0].name: should have printable"),
        ({"providers": provider(kind="ftp")}, "data: providers[0].type: "),
        ({"providers": [entry for n in range(101) for entry in provider(name=f"{n}")]}, "data: providers: "),
        ({"stickerpacks": [pack(name="")]}, "data: stickerpacks[0].name: "),
        ({"stickerpacks": [pack(id="x")]}, "data: stickerpacks[0].id: should be a UUID"),
        ({"stickerpacks": [pack(account="15559999999")]}, "data: stickerpacks: are not consistent"),
        ({"stickerpacks": [pack(), pack()]}, "data: stickerpacks: are not consistent"),
        ({"stickerpacks": [pack([sticker(), sticker()])]}, "data: stickerpacks: are not consistent"),
        ({"stickerpacks": [pack([sticker(pack="other")])]}, "data: stickerpacks: are not consistent"),
        ({"stickerpacks": [pack([sticker(position=-1)])]}, "data: stickerpacks[0].stickers[0].position: "),
        ({"stickerpacks": [pack([sticker(position=2**40)])]}, "data: stickerpacks[0].stickers[0].position: "),
        ({"stickerpacks": [pack([sticker(emojis=["x"] * 4)])]}, "data: stickerpacks[0].stickers[0].emojis: "),
        ({"stickerpacks": [pack([sticker(position=n) for n in range(31)])]}, "data: stickerpacks[0].stickers: "),
    ],
)
def test_a_part_that_its_own_call_refuses_is_refused_in_a_backup(parts: dict[str, Any], told: str) -> None:
    assert checks.check(msgspec.convert(MINIMAL, Contents), ACCOUNT, NOW).contents.settings == "{}"
    found = msgspec.json.decode(msgspec.json.encode(MINIMAL | parts), type=Contents)
    with pytest.raises(InvalidRequest) as caught:
        checks.check(found, ACCOUNT, NOW)
    [problem] = caught.value.problems
    assert (problem.code, problem.details[: len(told)]) == (1009, told)


_NAMES = strategies.sampled_from(
    ["webhooks", "url", "media", "message", "text", "pack", "id", "stickers", "position", "emojis", "basic", "config"]
)
_VALUES = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers() | strategies.floats() | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(_NAMES, inner, max_size=3),
)


@hypothesis.given(strategies.dictionaries(strategies.sampled_from(sorted(MINIMAL)), _VALUES), _VALUES)
def test_whatever_is_in_a_backup_is_refused_or_right(parts: dict[str, Any], document: Any) -> None:
    parts.setdefault("settings", msgspec.json.encode(document).decode())
    with contextlib.suppress(InvalidRequest, msgspec.ValidationError):
        found = msgspec.json.decode(msgspec.json.encode(MINIMAL | parts), type=Contents)
        checked = checks.check(found, ACCOUNT, NOW)
        msgspec.json.decode(checked.contents.settings, type=application_settings.ApplicationSettings)
        # What is right stays as it is.
        assert checks.check(checked.contents, ACCOUNT, NOW) == checked


async def test_a_backup_with_a_wrong_part_changes_nothing(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(outgoing_webhooks=ONLY_PUBLIC)
    await api.log_in()
    await fill(api)
    before = await everything(api)
    told = len(coreapp.asked(core.SettingsChanged))
    whole = msgspec.json.decode(password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup"))
    for part, value in (
        ("settings", b'"["'),
        ("settings", rb'"{\"webhooks\": {\"url\": \"http://10.0.0.1/\"}}"'),
        ("settings", rb'"{\"webhooks\": {\"max_concurrent_requests\": 100000000}}"'),
        ("external", b'"eA=="'),
        ("webhook_ca", b'"eA=="'),
        ("shards", b"1" + b"0" * 30),
        ("version", b"1" + b"0" * 30),
        ("number", b"[" * 100_000 + b"]" * 100_000),
        ("unknown", b"[" * 100_000 + b"]" * 100_000),
    ):
        raw = msgspec.json.encode(whole | {part: "here"}).replace(b'"here"', value)
        answer = await restore(api, password_box.seal(PASSWORD, raw, purpose="tidings backup"))
        assert code(answer) == (400, 1009), answer.text
        assert errors(answer)[0]["details"].startswith("data: ")
    assert await everything(api) == before
    assert not coreapp.asked(core.RestoreKeys)
    assert len(coreapp.asked(core.SettingsChanged)) == told


async def test_everything_that_is_wrong_is_told_at_once(api: Served) -> None:
    answer = await restore(api, await changed(api, shards=3, settings=settings(log_level=5)))
    assert [error["details"].partition(": should")[0] for error in errors(answer)] == [
        "data: shards",
        "data: settings.log_level",
    ]


async def test_a_certificate_whose_time_is_over_is_left_out_and_the_present_one_kept(
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


async def test_keys_beyond_what_a_coreapp_takes_at_a_time_are_refused_and_disturb_nobody(
    api: Served, coreapp: FakeCoreapp
) -> None:
    data = await changed(api, keys="x" * wire.MAX_FRAME)
    coreapp.answer(core.GetIdentity, lambda q: None)
    asking = asyncio.create_task(api.http.get("/v1/contacts/15550110001/identity"))
    await coreapp.until(lambda: bool(coreapp.asked(core.GetIdentity)))
    answer = await restore(api, data)
    assert code(answer) == (413, 1025)
    [told] = errors(answer)
    assert told["details"] == "data: the part with the keys is over the 4194304 bytes that a Coreapp takes at a time"
    assert not coreapp.asked(core.RestoreKeys)
    [question] = coreapp.asked(core.GetIdentity)
    for connection in coreapp.connections:
        connection.send(core.Identity(question.n, "Sjvjlx8G6Z0=", 1_602_532_300_000, True))
    assert (await asking).status_code == 200
    assert coreapp.greetings == 1


class Coreapps:
    """Takes every key."""

    async def ask_first(self, make: Callable[[int], Any], expect: type[Any]) -> Any:
        return core.Done(n=1)

    async def ask_first_safely(self, make: Callable[[int], Any], expect: type[Any]) -> Any:
        return core.Exported(n=1, data="keys")

    async def ask_all(self, make: Callable[[int], Any], expect: type[Any], *, timeout: float) -> list[Any]:
        return []


@pytest.mark.parametrize("database_engine", ["sqlite", "mariadb"])
async def test_every_database_gives_back_what_was_backed_up(database: Database, database_engine: str) -> None:
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
        await profiles.set_business(connection, ACCOUNT, BusinessProfile("1 Example Street", websites=("https://x.y",)))
        await profiles.set_photo(connection, ACCOUNT, Photo("image/png", PNG))
        await certificates.set_certificate(connection, ACCOUNT, certificates.WEBHOOK_CA, AUTHORITY.pem)
        await stickerpacks.put_pack(
            connection, Pack(PACK, ACCOUNT, "Tidings", "Cats"), [Sticker(PACK, 7, STICKER, ("🎉",))]
        )
        before = await contents.read(connection, safe, ACCOUNT, "keys")
    data = await backups.make(caller, PASSWORD)
    async with database.transaction() as connection:
        await media_providers.save_providers(connection, [MediaProvider(ACCOUNT, "files", "www", config)])
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


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        (BACKUP, {}, 1008),
        (BACKUP, {"password": ""}, 1009),
        (BACKUP, {"password": 5}, 1009),
        (RESTORE, {"password": "x"}, 1008),
        (RESTORE, {"data": "x"}, 1008),
        (RESTORE, {"password": "x", "data": ""}, 1009),
        (RESTORE, [], 1009),
    ],
)
async def test_what_is_missing_or_wrong_is_told(api: Served, path: str, content: Any, expected: int) -> None:
    assert code(await api.http.post(path, json=content)) == (400, expected)


@pytest.mark.parametrize("path", [BACKUP, RESTORE])
async def test_backups_are_for_administrators(api: Served, path: str) -> None:
    await check_is_for_administrators(api, "POST", path)


async def test_the_password_of_a_new_backup_has_8_characters_and_a_shorter_one_still_opens_an_old_one(
    api: Served,
) -> None:
    assert code(await api.http.post(BACKUP, json={"password": "seven77"})) == (400, 1009)
    assert code(await api.http.post(BACKUP, json={})) == (400, 1008)
    content = password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup")
    old = password_box.seal("short", content, purpose="tidings backup")
    assert (await restore(api, old, "short")).status_code == 200
