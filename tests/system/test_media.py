"""Files on real processes: from the API to a handset in a terminal and back, byte for byte."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from handset import settings
from harness.installation import Installation
from tests.coreapp import webhook_schemas
from tests.handset.test_terminal import ADA, at_the_terminal
from tests.media_samples import SAMPLES
from tests.system.webhook import Webhook
from tests.web_server import serving
from tidings.media import kinds

pytestmark = pytest.mark.whole_system

SENT = (
    "image/png",
    "audio/ogg; codecs=opus",
    "video/mp4",
    "image/webp",
    "application/pdf",
    "text/plain; charset=utf-8",
)
TOKEN = "token of the shop"
TEMPLATE = {
    "name": "bill",
    "language": "en_US",
    "components": [{"type": "HEADER", "format": "DOCUMENT"}, {"type": "BODY", "text": "Your bill"}],
}


@pytest.fixture
async def shop() -> AsyncIterator[str]:
    """Run a web server that serves a picture to clients with the token."""

    async def serve(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return web.Response(status=401)
        return web.Response(body=SAMPLES["image/jpeg"], content_type="image/jpeg")

    app = web.Application()
    app.router.add_get("/a.jpg", serve)
    async with serving(app) as url:
        yield f"{url}/a.jpg"


async def test_files_arrive_unchanged_in_both_directions(
    installation: Installation, webhook: tuple[Webhook, str], shop: str, tmp_path: Path
) -> None:
    sink, url = webhook
    await installation.start()
    business = await installation.business()
    await business.set_webhook(url)
    folder = tmp_path / "ada"
    variables = {**installation.common, "TIDINGS_HANDSET_NAME": "Ada", "TIDINGS_HANDSET_FILES": str(folder)}
    async with (
        at_the_terminal(settings.TerminalSettings.read(variables)) as ada,
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{installation.api_port}",
            headers={"Authorization": f"Bearer {business.token}"},
            trust_env=False,
            timeout=30,
        ) as http,
    ):
        await ada.until("Connected")
        await business.check_contacts([ADA])
        await business.check_call("POST", "/v1/configs/templates", TEMPLATE)
        providers = [{"name": "shop", "type": "www", "config": {"bearer": TOKEN}}]
        await business.check_call("POST", "/v1/settings/application/media/providers", providers)

        async def upload(kind: str) -> str:
            response = await http.post("/v1/media", content=SAMPLES[kind], headers={"Content-Type": kind})
            assert response.status_code == 200, response.text
            media_id: str = response.json()["media"][0]["id"]
            return media_id

        async def send(kind: str, content: Any) -> None:
            await business.check_call("POST", "/v1/messages", {"to": ADA, "type": kind, kind: content})

        expected: list[bytes] = []
        for mime_type in SENT:
            kind = kinds.parse(mime_type).kind
            name = {"filename": f"file {len(expected)}.bin"} if kind == "document" else {}
            await send(kind, {"id": await upload(mime_type), **name})
            expected.append(SAMPLES[mime_type])
            await ada.until(rf"\[{kind}\] {name.get('filename', kind)}.*, {re.escape(mime_type)}")
        await send("image", {"link": shop, "provider": {"name": "shop"}, "caption": "by link"})
        await ada.until("by link")
        expected.append(SAMPLES["image/jpeg"])
        header = {"type": "document", "document": {"id": await upload("application/pdf"), "filename": "bill.pdf"}}
        component = {"type": "header", "parameters": [header]}
        await send("template", {"name": "bill", "language": {"code": "en_US"}, "components": [component]})
        await ada.until("Your bill")
        expected.append(SAMPLES["application/pdf"])
        buttons = [{"type": "reply", "reply": {"id": "0", "title": "Yes"}}]
        picture = {"type": "image", "image": {"id": await upload("image/png")}}
        await send(
            "interactive",
            {"type": "button", "header": picture, "body": {"text": "Is it?"}, "action": {"buttons": buttons}},
        )
        await ada.until("Is it?")
        expected.append(SAMPLES["image/png"])
        for number in range(1, len(expected) + 1):
            ada.type(f"/save {number}")
        await ada.until_count("Saved /", len(expected))
        files = sorted(path.read_bytes() for path in folder.iterdir())
        assert files == sorted(expected)

        # In the other direction: the file that she sends is fetched before the webhook is called.
        cat = tmp_path / "cat.png"
        cat.write_bytes(SAMPLES["image/png"])
        ada.type(f"/send {cat} My cat")
        inbound = (await sink.received("image"))["image"]
        assert (inbound["mime_type"], inbound["caption"]) == ("image/png", "My cat")
        response = await http.get(f"/v1/media/{inbound['id']}")
        assert (response.content, response.headers["Content-Type"]) == (SAMPLES["image/png"], "image/png")
        await send("image", {"id": inbound["id"], "caption": "yours again"})
        await ada.until("yours again")

        assert (await http.delete(f"/v1/media/{inbound['id']}")).status_code == 200
        status, refused = await business.call(
            "POST", "/v1/messages", {"to": ADA, "type": "image", "image": {"id": inbound["id"]}}
        )
        assert (status, refused["errors"][0]["code"]) == (404, 1006)

        orphan = installation.data_dir / "media" / ("0" * 32)
        orphan.write_bytes(b"x")
        os.utime(orphan, (1, 1))
        await business.check_call("PUT", "/v1/services/media/gc")
        result = await sink.until(lambda body: "services" in body)
        [collected] = result["services"]
        assert collected["media"]["gc"] | {"node": ""} == {"items_deleted": 1, "status": "complete", "node": ""}
        assert not orphan.exists()
    for body in sink.bodies:
        webhook_schemas.check(body)
