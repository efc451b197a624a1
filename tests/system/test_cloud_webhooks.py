"""Webhooks of the Cloud API on real processes: a receiver that verifies each signature gets statuses and a reply."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from aiohttp import ClientSession, FormData, web

from harness.client import Business
from harness.installation import Installation
from tests.media_samples import PNG
from tests.web_server import serving

pytestmark = [pytest.mark.whole_system, pytest.mark.asyncio(loop_scope="module")]

APP, WABA, NUMBER = "3711468565284653", "2397639735729717", "1393060602093303"
READER, ECHO, ANSWERING = "15550110001", "15550140001", "15550180001"
SECONDS = 60.0


class Receiver:
    """Receiver of webhooks that refuses the first attempt at each."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.forged = 0
        self.refused: set[str] = set()
        self.values: list[dict[str, Any]] = []
        self._changed = asyncio.Event()

    async def verify(self, request: web.Request) -> web.Response:
        is_known = request.query.get("hub.verify_token") == "open sesame"
        return web.Response(text=request.query["hub.challenge"]) if is_known else web.Response(status=403)

    async def take(self, request: web.Request) -> web.Response:
        raw = await request.read()
        made = "sha256=" + hmac.new(self.secret.encode(), raw, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(request.headers.get("X-Hub-Signature-256", ""), made):
            self.forged += 1
        if request.headers["webhook-id"] not in self.refused:
            self.refused.add(request.headers["webhook-id"])
            return web.Response(status=503)
        self.values += [change["value"] for entry in json.loads(raw)["entry"] for change in entry["changes"]]
        self._changed.set()
        return web.Response()

    def statuses(self, message_id: str) -> list[str]:
        found = [status for value in self.values for status in value.get("statuses", ())]
        return [status["status"] for status in found if status["id"] == message_id]

    def messages(self) -> list[dict[str, Any]]:
        return [message for value in self.values for message in value.get("messages", ())]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installation]:
    """Installation that runs, for all tests of this module."""
    variables = {"TIDINGS_ROBOTS_PER_KIND": "2", "TIDINGS_CLOUD_API": "1", "TIDINGS_TESTING": "1"}
    async with Installation(tmp_path_factory.mktemp("webhooks"), None, variables) as started:
        await started.start()
        yield started


async def app_secret(installation: Installation) -> str:
    """Return the secret that `tidings webhook-secret cloud` prints."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "webhook-secret", "cloud"),
        env={**os.environ, **installation.common},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return printed.decode().strip()


@contextlib.asynccontextmanager
async def subscribed(installation: Installation, business: Business) -> AsyncIterator[Receiver]:
    """Subscribe a receiver to the messages of the number. Attempts are repeated after a tenth of a second."""
    await business.check_call("PATCH", "/v1/settings/application", {"callback_backoff_delay_ms": 100})
    receiver, app = Receiver(await app_secret(installation)), web.Application()
    app.router.add_get("/hook", receiver.verify)
    app.router.add_post("/hook", receiver.take)
    async with serving(app) as url:
        body = {
            "object": "whatsapp_business_account",
            "callback_url": f"{url}/hook",
            "verify_token": "open sesame",
            "fields": "messages",
        }
        assert await business.check_call("POST", f"/v25.0/{APP}/subscriptions", body) == {"success": True}
        assert await business.check_call("POST", f"/v25.0/{WABA}/subscribed_apps", {}) == {"success": True}
        yield receiver


async def test_a_message_s_statuses_and_a_robot_s_reply_reach_a_receiver_that_verifies_signatures(
    installation: Installation,
) -> None:
    business = await installation.business()
    async with subscribed(installation, business) as receiver:

        async def send(to: str, text: str) -> str:
            message = {
                "messaging_product": "whatsapp",
                "to": to,
                "text": {"body": text},
                "biz_opaque_callback_data": f"about {to}",
            }
            response = await business.check_call("POST", f"/v25.0/{NUMBER}/messages", message)
            message_id: str = response["messages"][0]["id"]
            return message_id

        read, echoed = await send(READER, "hi"), await send(ECHO, "Grüße / \U0001f642")
        await receiver.until(lambda: len(receiver.statuses(read)) == 3)
        assert receiver.statuses(read) == ["sent", "delivered", "read"]
        await receiver.until(lambda: bool(receiver.messages()) and len(receiver.statuses(echoed)) == 3)
        (reply,) = receiver.messages()
        assert (reply["from"], reply["type"], reply["text"]) == (ECHO, "text", {"body": "Grüße / \U0001f642"})
        mark = {"messaging_product": "whatsapp", "status": "read", "message_id": reply["id"]}
        assert await business.check_call("POST", f"/v25.0/{NUMBER}/messages", mark) == {"success": True}
        data = {status["biz_opaque_callback_data"] for value in receiver.values for status in value.get("statuses", ())}
        assert data == {f"about {READER}", f"about {ECHO}"}
    assert receiver.forged == 0
    assert len(receiver.refused) == len(receiver.values)


async def test_the_url_of_a_file_serves_it_and_a_blocked_user_reaches_no_webhook(installation: Installation) -> None:
    business = await installation.business()
    origin, headers = f"http://127.0.0.1:{installation.api_port}", {"Authorization": f"Bearer {business.token}"}
    async with subscribed(installation, business) as receiver, ClientSession(origin, headers=headers) as http:

        async def send(kind: str, content: dict[str, Any]) -> str:
            message = {"messaging_product": "whatsapp", "to": ANSWERING, "type": kind, kind: content}
            response = await business.check_call("POST", f"/v25.0/{NUMBER}/messages", message)
            message_id: str = response["messages"][0]["id"]
            return message_id

        def received_types() -> list[str]:
            return [message["type"] for message in receiver.messages()]

        form = FormData({"messaging_product": "whatsapp"})
        form.add_field("file", PNG, filename="a.png", content_type="image/png")
        async with http.post(f"/v25.0/{NUMBER}/media", data=form) as response:
            await send("image", {"id": (await response.json())["id"]})
        await receiver.until(lambda: received_types() == ["image"])
        url = urlsplit(receiver.messages()[0]["image"]["url"])
        # The harness names the host without its port.
        assert (url.scheme, url.netloc) == ("http", "127.0.0.1")
        async with http.get(f"{url.path}?{url.query}") as response:
            assert (response.status, await response.read()) == (200, PNG)

        blocks = {"messaging_product": "whatsapp", "block_users": [{"user": ANSWERING}]}
        added = await business.check_call("POST", f"/v25.0/{NUMBER}/block_users", blocks)
        assert added["block_users"] == {"added_users": [{"input": ANSWERING, "wa_id": ANSWERING}]}
        refused = await send("text", {"body": "location"})
        await receiver.until(lambda: receiver.statuses(refused) == ["failed"])
        assert await business.check_call("DELETE", f"/v25.0/{NUMBER}/block_users", blocks)
        await send("text", {"body": "location"})
        await receiver.until(lambda: received_types() == ["image", "location"])


async def test_a_webhook_that_a_test_requests_is_posted_to_the_subscribed_app(installation: Installation) -> None:
    business = await installation.business()
    async with subscribed(installation, business) as receiver:
        request = {"field": "account_review_update", "value": {"decision": "APPROVED"}}
        assert (await business.call("POST", "/tidings/webhooks", request))[0] == 400
        subscription = {"object": "whatsapp_business_account", "fields": request["field"]}
        await business.check_call("POST", f"/v25.0/{APP}/subscriptions", subscription)
        (queued,) = (await business.check_call("POST", "/tidings/webhooks", request))["webhooks"]
        await receiver.until(lambda: request["value"] in receiver.values)
        assert queued["id"] in receiver.refused
        assert receiver.forged == 0
