"""Client libraries from npm send to and receive from a real installation. Needs Node 20 and the packages of `node/`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness import cloud_client
from harness.mariadb import free_port
from tests.cloud_clients import support

pytestmark = pytest.mark.whole_system

NODE = Path(__file__).parent / "node"
# The vendor's SDK knows a host, and always uses HTTPS on port 443.
HOST = "127.0.0.2"
GREETING = {
    "name": "greeting",
    "language": "en_US",
    "category": "UTILITY",
    "components": [{"type": "BODY", "text": "Hello {{1}}", "example": {"body_text": [["Ana"]]}}],
}


async def test_the_typescript_client_sends_manages_and_verifies_webhooks(tmp_path: Path) -> None:
    async with support.serving(tmp_path) as server, support.linked_file() as link:
        variables = {**server.variables(free_port()), "FILE_URL": link}
        async with support.running(["node", "kapso.mjs"], NODE, variables) as program:
            kinds = ["text", "image", "location", "contacts", "buttons", "list", "link", "template", "reaction"]
            done = ["download", "template deleted", "profile", "read", "deleted"]
            await support.exchange(server, program, kinds, done)


@pytest.mark.skipif(os.geteuid() != 0, reason="port 443 needs root")
async def test_the_vendor_s_archived_sdk_sends_each_kind_and_verifies_its_callback(tmp_path: Path) -> None:
    async with (
        support.serving(tmp_path) as server,
        support.over_https(server, tmp_path, HOST, 443) as authority,
        support.linked_file() as link,
    ):
        templates = f"/{cloud_client.VERSION}/{support.IDS.waba_id}/message_templates"
        await server.business.check_call("POST", templates, GREETING)
        shared = server.variables(free_port())
        variables = {
            **shared,
            "FILE_URL": link,
            "NODE_ENV": "production",
            "NODE_EXTRA_CA_CERTS": str(authority),
            "WA_BASE_URL": HOST,
            "WA_PHONE_NUMBER_ID": support.IDS.phone_number_id,
            "CLOUD_API_VERSION": cloud_client.VERSION,
            "CLOUD_API_ACCESS_TOKEN": server.business.token,
            "M4D_APP_SECRET": server.secret,
            "WEBHOOK_ENDPOINT": "hook",
            "WEBHOOK_VERIFICATION_TOKEN": support.VERIFY_TOKEN,
            "LISTENER_PORT": str(free_port()),
        }
        async with support.running(["node", "vendor.cjs"], NODE, variables) as program:
            kinds = ["text", "image", "document", "location", "contacts", "buttons", "list", "template", "quoted"]
            await support.exchange(server, program, kinds, ["pin", "read"])
