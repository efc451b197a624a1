"""Handset that registers again, on real processes: reported, refused, acknowledged, written to again."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from handset import settings
from handset.settings import TerminalSettings
from harness.client import Business
from harness.installation import Installation
from tests.coreapp import webhook_schemas
from tests.handset.test_terminal import ADA, at_the_terminal
from tests.system.webhook import Webhook

pytestmark = pytest.mark.whole_system

PATH = f"/v1/contacts/{ADA}/identity"


def handset(installation: Installation, folder: Path) -> TerminalSettings:
    """Return the settings of a handset with a separate data directory, hence separate keys."""
    folder.mkdir()
    url = f"sqlite+aiosqlite:///{folder / 'handset.db'}"
    return settings.TerminalSettings.read({**installation.common, "TIDINGS_HANDSET_DB_URL": url})


async def send(business: Business, text: str) -> tuple[int, Any]:
    return await business.call("POST", "/v1/messages", {"to": ADA, "type": "text", "text": {"body": text}})


async def test_a_reregistered_handset_is_sent_to_once_its_identity_is_acknowledged(
    installation: Installation, webhook: tuple[Webhook, str], tmp_path: Path
) -> None:
    sink, url = webhook
    await installation.start()
    business = await installation.business()
    await business.set_webhook(url)
    application = {"show_security_notifications": True}
    await business.check_call("PATCH", "/v1/settings/application", application)
    async with at_the_terminal(handset(installation, tmp_path / "first")) as ada:
        await ada.until("Connected")
        await business.check_contacts([ADA])
        status, _ = await send(business, "to the first handset")
        assert status == 201
        await ada.until("to the first handset")
    before = (await business.check_call("GET", PATH))["contacts"]
    assert before["acknowledged"]
    assert len(base64.b64decode(before["hash"])) == 8

    async with at_the_terminal(handset(installation, tmp_path / "second")) as ada:
        await ada.until("Connected")
        told = await sink.received("system")
        now = (await business.check_call("GET", PATH))["contacts"]
        assert told["system"]["type"] == "user_identity_changed"
        assert told["system"]["identity"] == now["hash"] != before["hash"]
        assert told["identity"] == now == {**now, "acknowledged": False}

        status, response = await send(business, "too early")
        assert (status, response["errors"][0]["code"]) == (400, 1028)
        status, response = await business.call("PUT", PATH, {"hash": before["hash"]})
        assert (status, response["errors"][0]["code"]) == (400, 1009)
        assert set(await business.check_call("PUT", PATH, {"hash": now["hash"]})) == {"meta"}
        assert (await business.check_call("GET", PATH))["contacts"] == {**now, "acknowledged": True}
        status, _ = await send(business, "to the second handset")
        assert status == 201
        await ada.until("to the second handset")
        ada.type("it is me")
        message = await sink.received("text")
        assert message["identity"] == {**now, "acknowledged": True}
    for body in sink.bodies:
        webhook_schemas.check(body)
    assert "too early" not in json.dumps(sink.bodies)
