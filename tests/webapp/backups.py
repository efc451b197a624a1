"""Helpers for backup tests: one of every kind of setting, backups of them, and their restoration."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec

from tests.authority import Authority
from tests.media_samples import SAMPLES
from tests.webapp.conftest import Served, body, check_headers
from tidings.secrets import password_box

BACKUP, RESTORE = "/v1/settings/backup", "/v1/settings/restore"
PASSWORD = "under seal"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(1000)
PACK, STICKER = "583b6a66-dba8-4f80-82cd-15b5b0ae50dd", "0d0e1a6a-38bb-4a7b-9d59-37ba5eee6a5e"
AUTHORITY = Authority()
BUNDLE = AUTHORITY.bundle("localhost")
ACCOUNT = "15550000000"


async def backup(api: Served, password: str = PASSWORD) -> str:
    response = await api.http.post(BACKUP, json={"password": password})
    assert response.status_code == 200, response.text
    payload = response.json()
    assert set(payload) == {"settings", "meta"}
    assert set(payload["settings"]) == {"data"}
    check_headers(response)
    return str(payload["settings"]["data"])


async def restore(api: Served, data: str, password: str = PASSWORD) -> Any:
    return await api.http.post(RESTORE, json={"password": password, "data": data})


async def fill(api: Served) -> None:
    """Set one of every kind of setting."""
    for method, path, content in (
        ("PATCH", "/v1/settings/application", {"webhooks": {"url": "https://example.com/"}, "sent_status": True}),
        ("PATCH", "/v1/settings/profile/about", {"text": "about us"}),
        ("POST", "/v1/settings/business/profile", {"address": "1 Example Street", "websites": ["https://example.com"]}),
        ("POST", "/v1/settings/account/two-step", {"pin": "123456"}),
    ):
        assert (await api.http.request(method, path, json=content)).status_code == 200
    pack = await api.http.post("/v1/stickerpacks", json={"publisher": "Tidings", "name": "Cats"})
    stickers = f"/v1/stickerpacks/{pack.json()['stickerpacks'][0]['id']}/stickers"
    sticker = {"content": SAMPLES["image/webp"], "headers": {"Content-Type": "image/webp"}}
    image = (await api.http.post("/v1/media", **sticker)).json()["media"][0]["id"]
    for path, given in (
        (stickers, {"image_data_id": image, "emojis": ["🎉"]}),
        (stickers, {"image_data_id": image}),
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
    """Return a backup that was opened, changed and sealed again."""
    content = msgspec.json.decode(password_box.open_box(PASSWORD, await backup(api), purpose="tidings backup"))
    return password_box.seal(PASSWORD, msgspec.json.encode(content | parts), purpose="tidings backup")


def packed(content: bytes) -> str:
    """Encode bytes as a backup does."""
    return base64.b64encode(content).decode()


def settings(**changes: Any) -> str:
    return json.dumps(changes)


async def wipe(api: Served) -> None:
    await api.http.delete("/v1/settings/application")
    await api.http.patch("/v1/settings/profile/about", json={"text": "another"})
    await api.http.post("/v1/settings/business/profile", json={})
    await api.http.delete("/v1/settings/profile/photo")
    await api.http.delete("/v1/settings/account/two-step")
