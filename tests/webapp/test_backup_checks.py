"""A backup that is invalid, or that a process rejects, is refused and changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies

from tests.authority import NOW
from tests.webapp.backups import (
    ACCOUNT,
    BACKUP,
    BUNDLE,
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
from tests.webapp.conftest import Serve, Served, code, errors
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.egress.settings import ONLY_PUBLIC
from tidings.secrets import password_box
from tidings.storage.business import (
    application_settings,
)
from tidings.wire import connection as wire
from tidings.wire import core
from webapp.api.backup import checks
from webapp.api.backup.contents import Contents
from webapp.http.errors import InvalidRequest

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


def provider(**changes: Any) -> list[dict[str, Any]]:
    config = packed(json.dumps(changes.pop("config", {"bearer": "a token"})).encode())
    return [{"name": "files", "kind": "www", "config": config} | changes]


def pack(stickers: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    whole = {"id": PACK, "account": ACCOUNT, "publisher": "Tidings", "name": "Cats"} | changes
    return {"pack": whole, "stickers": stickers or []}


def sticker(**changes: Any) -> dict[str, Any]:
    return {"pack": PACK, "position": 0, "image_data_id": STICKER, "emojis": []} | changes


async def test_a_wrong_password_or_damaged_data_changes_nothing(api: Served, coreapp: FakeCoreapp) -> None:
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
        response = await restore(api, content, password)
        assert code(response) == (400, 1009)
        assert errors(response)[0]["details"].startswith(f"{field}: ")
    assert await everything(api) == before
    assert not coreapp.requested(core.RestoreKeys)


async def test_a_backup_of_another_number_or_version_is_refused(api: Served) -> None:
    content = msgspec.json.decode(password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup"))
    for change, words in (({"number": "15559999999"}, "backup of 15559999999"), ({"version": 2}, "version 2")):
        data = password_box.seal(PASSWORD, msgspec.json.encode(content | change), purpose="tidings backup")
        response = await restore(api, data)
        assert code(response) == (400, 1009)
        assert words in errors(response)[0]["details"]


async def test_a_refusal_by_a_coreapp_stops_a_restore_before_any_change(api: Served, coreapp: FakeCoreapp) -> None:
    await fill(api)
    data = await backup(api)
    await wipe(api)
    before = (await api.http.get("/v1/settings/application")).json()
    coreapp.refuse(core.RestoreKeys, 1009, "data: the password is wrong")
    assert code(await restore(api, data)) == (400, 1009)
    assert (await api.http.get("/v1/settings/application")).json() == before
    coreapp.refuse(core.ExportKeys, 1011, "the number is not registered")
    assert code(await api.http.post(BACKUP, json={"password": PASSWORD})) == (503, 1011)


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
def test_parts_that_their_own_endpoints_refuse_are_refused_in_a_backup(parts: dict[str, Any], told: str) -> None:
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
def test_any_backup_content_is_either_refused_or_valid(parts: dict[str, Any], document: Any) -> None:
    parts.setdefault("settings", msgspec.json.encode(document).decode())
    with contextlib.suppress(InvalidRequest, msgspec.ValidationError):
        found = msgspec.json.decode(msgspec.json.encode(MINIMAL | parts), type=Contents)
        checked = checks.check(found, ACCOUNT, NOW)
        msgspec.json.decode(checked.contents.settings, type=application_settings.ApplicationSettings)
        # Valid contents stay unchanged.
        assert checks.check(checked.contents, ACCOUNT, NOW) == checked


# Deeper than any version of Python decodes.
NESTED = b"[" * 1_000_000 + b"]" * 1_000_000


async def test_a_backup_with_an_invalid_part_changes_nothing(serve: Serve, coreapp: FakeCoreapp) -> None:
    api = await serve(outgoing_webhooks=ONLY_PUBLIC)
    await api.log_in()
    await fill(api)
    before = await everything(api)
    told = len(coreapp.requested(core.SettingsChanged))
    whole = msgspec.json.decode(password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup"))
    for part, value in (
        ("settings", b'"["'),
        ("settings", rb'"{\"webhooks\": {\"url\": \"http://10.0.0.1/\"}}"'),
        ("settings", rb'"{\"webhooks\": {\"max_concurrent_requests\": 100000000}}"'),
        ("external", b'"eA=="'),
        ("webhook_ca", b'"eA=="'),
        ("shards", b"1" + b"0" * 30),
        ("version", b"1" + b"0" * 30),
        ("number", NESTED),
        ("unknown", NESTED),
    ):
        raw = msgspec.json.encode(whole | {part: "here"}).replace(b'"here"', value)
        response = await restore(api, password_box.seal(PASSWORD, raw, purpose="tidings backup"))
        assert code(response) == (400, 1009), response.text
        assert errors(response)[0]["details"].startswith("data: ")
    assert await everything(api) == before
    assert not coreapp.requested(core.RestoreKeys)
    assert len(coreapp.requested(core.SettingsChanged)) == told


async def test_all_problems_of_a_backup_are_reported_at_once(api: Served) -> None:
    response = await restore(api, await changed(api, shards=3, settings=settings(log_level=5)))
    assert [error["details"].partition(": should")[0] for error in errors(response)] == [
        "data: shards",
        "data: settings.log_level",
    ]


async def test_too_large_keys_get_413_and_other_calls_continue(api: Served, coreapp: FakeCoreapp) -> None:
    data = await changed(api, keys="x" * wire.MAX_FRAME)
    coreapp.respond(core.GetIdentity, lambda q: None)
    call = asyncio.create_task(api.http.get("/v1/contacts/15550110001/identity"))
    await coreapp.until(lambda: bool(coreapp.requested(core.GetIdentity)))
    response = await restore(api, data)
    assert code(response) == (413, 1025)
    [told] = errors(response)
    assert told["details"] == "data: the part with the keys is over the 4194304 bytes that a Coreapp accepts at a time"
    assert not coreapp.requested(core.RestoreKeys)
    [request] = coreapp.requested(core.GetIdentity)
    for connection in coreapp.connections:
        connection.send(core.Identity(request.n, "Sjvjlx8G6Z0=", 1_602_532_300_000, True))
    assert (await call).status_code == 200
    assert coreapp.greetings == 1


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
async def test_missing_or_invalid_fields_are_refused(api: Served, path: str, content: Any, expected: int) -> None:
    assert code(await api.http.post(path, json=content)) == (400, expected)
