"""Business that sends through the Cloud API, and whose webhook gets events in that API's format."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping

import msgspec

from harness.client import Business, UnexpectedResponse
from tidings.wire.cloud import identity, wamid

VERSION = "v25.0"
VERIFY_TOKEN = "harness"
ACCOUNT = "15550000000"  # number of an installation that sets none
_UNAVAILABLE = b'"code":131016,'
_ENVELOPE = b'{"messaging_product":"whatsapp",'


class _MessageId(msgspec.Struct):
    id: str


class _Accepted(msgspec.Struct):
    messages: list[_MessageId]


_accepted = msgspec.json.Decoder(_Accepted).decode


class CloudBusiness(Business):
    """Client of the Cloud API. The ids of its messages are our own, as recipients show them."""

    def __init__(self, *ports: int, account: str = ACCOUNT) -> None:
        super().__init__(*ports)
        self._ids = identity.derive(account)
        self._messages = f"/{VERSION}/{self._ids.phone_number_id}/messages"

    async def set_webhook(self, url: str) -> None:
        """Set the callback of the app, and subscribe the app to its WABA. Settings of v1 stay as they are."""
        callback = {
            "object": "whatsapp_business_account",
            "callback_url": url,
            "verify_token": VERIFY_TOKEN,
            "fields": "messages",
        }
        await self.check_call("POST", f"/{VERSION}/{self._ids.app_id}/subscriptions", callback)
        await self.check_call("POST", f"/{VERSION}/{self._ids.waba_id}/subscribed_apps", {})

    def message_request(self, body: bytes, key: str) -> bytes:
        """Return the request that sends a message. The Cloud API has no idempotency keys."""
        return self.request("POST", self._messages, _ENVELOPE + body[1:])

    def outcome(self, status: int, response: bytes) -> int:
        """Return the HTTP status of v1: 503 for a refusal, which has 500 here, as an unknown outcome has."""
        return 503 if status == 500 and _UNAVAILABLE in response else status

    def accepted_id(self, response: bytes) -> str:
        """Return our own id of an accepted message. Raises `UnexpectedResponse` for one of another form."""
        given = _accepted(response).messages[0].id
        found = wamid.decode(given)
        if found is None:
            raise UnexpectedResponse(f"id of a message: {given}")
        return found.message_id


async def app_secret(environment: Mapping[str, str]) -> str:
    """Return the secret that `tidings webhook-secret cloud` prints.

    environment: variables of the installation
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "webhook-secret", "cloud"),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    if process.returncode != 0:
        raise UnexpectedResponse(f"tidings webhook-secret cloud: exit status {process.returncode}")
    return printed.decode().strip()
