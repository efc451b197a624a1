"""Files in both directions on real processes while the Coreapp is killed: each arrives complete, and once."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web

from handset import settings
from harness.client import Business
from harness.installation import Installation
from tests.coreapp.media_scene import read
from tests.handset.test_terminal import ADA, Session, at_the_terminal
from tests.system.webhook import Webhook
from tests.web_server import serving

pytestmark = pytest.mark.whole_system

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40
LARGE = b"PK\x03\x04" + random.Random(0).randbytes(24 * 1024 * 1024)


class Api:
    """Media endpoints, with raw bodies."""

    def __init__(self, business: Business) -> None:
        headers = {"Authorization": f"Bearer {business.token}"}
        url = f"http://127.0.0.1:{business.port}"
        self._client = httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30)

    async def upload(self, content: bytes, mime_type: str) -> str:
        respond = await self._client.post("/v1/media", content=content, headers={"Content-Type": mime_type})
        assert respond.is_success, respond.text
        media_id: str = respond.json()["media"][0]["id"]
        return media_id

    async def get(self, media_id: str) -> httpx.Response:
        return await self._client.get(f"/v1/media/{media_id}")

    async def close(self) -> None:
        await self._client.aclose()


@pytest.fixture
async def link() -> AsyncIterator[str]:
    """Yield the URL of an external web server that has the picture."""

    async def respond(request: web.Request) -> web.Response:
        return web.Response(body=PNG, content_type="image/png")

    app = web.Application()
    app.router.add_get("/cat.png", respond)
    async with serving(app) as url:
        yield f"{url}/cat.png"


async def saved(ada: Session, count: int) -> bytes:
    """Return the file that the `count`-th `/save` wrote on the handset's disk."""
    ada.type("/save")
    await ada.until_count("^Saved ", count)
    line = [line for line in ada.lines if line.startswith("Saved ")][-1]
    return read(line.removeprefix("Saved ").rpartition(" (")[0])


async def test_files_arrive_complete_and_once_in_both_directions_despite_kills(
    installation: Installation, webhook: tuple[Webhook, str], link: str, tmp_path: Path
) -> None:
    sink, url = webhook
    await installation.start()
    business = await installation.business()
    await business.set_webhook(url)
    api = Api(business)
    coreapp = installation.processes["coreapp"]
    variables = {**installation.common, "TIDINGS_HANDSET_NAME": "Ada"}
    async with at_the_terminal(settings.TerminalSettings.read(variables)) as ada:
        await ada.until("Connected")
        await business.check_contacts([ADA])

        async def send(kind: str, content: dict[str, Any]) -> str:
            body = {"to": ADA, "type": kind, kind: content}
            respond = await business.check_call("POST", "/v1/messages", body)
            message_id: str = respond["messages"][0]["id"]
            return message_id

        # By id and by link. A text that is sent after them is shown after them.
        await send("image", {"id": await api.upload(PNG, "image/png"), "caption": "A cat"})
        await send("image", {"link": link, "caption": "Another cat"})
        await send("text", {"body": "cats"})
        await ada.until(": cats")
        shown = [line for line in ada.lines if "[image]" in line or ": cats" in line]
        assert ["[image]" in line for line in shown] == [True, True, False]
        assert await saved(ada, 1) == PNG

        # An accepted message is sent even when the Coreapp dies before the file is in the network.
        message = await send("document", {"id": await api.upload(LARGE, "application/zip"), "filename": "large.zip"})
        await coreapp.kill9()
        await coreapp.start()
        await ada.until("large.zip")
        await sink.until(lambda body: body.get("statuses", [{}])[0].get("id") == message)
        assert await saved(ada, 2) == LARGE

        # In the other direction: the webhook is called once, with the file.
        theirs = tmp_path / "theirs.zip"
        theirs.write_bytes(LARGE[::-1])
        ada.type(f"/send {theirs} look")
        await coreapp.kill9()
        await coreapp.start()
        document = (await sink.received("document"))["document"]
        assert (document["filename"], document["caption"], document["status"]) == ("theirs.zip", "look", "downloaded")
        respond = await api.get(document["id"])
        assert respond.content == LARGE[::-1]
        assert respond.headers["content-type"] == document["mime_type"]
        received = [body for body in sink.bodies if body.get("messages", [{}])[0].get("type") == "document"]
        assert len(received) == 1
    await api.close()
