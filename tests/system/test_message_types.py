"""Every type of message on real processes: shown by a handset in a terminal, answered there, posted to the
webhook."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handset import settings
from harness.installation import Installation
from tests.coreapp import webhook_schemas
from tests.handset.test_terminal import ADA, at_the_terminal
from tests.system.webhook import Webhook

pytestmark = pytest.mark.whole_system

DATA = Path(__file__).parents[1] / "data" / "api"


async def test_the_terminal_shows_every_type_and_its_replies_reach_the_webhook(
    installation: Installation, webhook: tuple[Webhook, str], tmp_path: Path
) -> None:
    sink, url = webhook
    await installation.start()
    business = await installation.business()
    await business.set_webhook(url)
    variables = {**installation.common, "TIDINGS_HANDSET_NAME": "Ada"}
    async with at_the_terminal(settings.TerminalSettings.read(variables)) as ada:
        await ada.until("Connected")
        await business.check_contacts([ADA])
        for definition in json.loads((DATA / "templates_good.json").read_text()):
            await business.check_call("POST", "/v1/configs/templates", definition)

        async def send(file: str, case: str) -> str:
            body = json.loads((DATA / "messages" / f"{file}.json").read_text())["good"][case]["body"]
            response = await business.check_call("POST", "/v1/messages", body | {"to": ADA})
            message_id: str = response["messages"][0]["id"]
            return message_id

        await send("location", "full")
        await ada.until(r"\[location\] Stephansplatz, 1010 Wien \(48.2082, 16.3738\)")
        await send("contacts", "full")
        await ada.until(r"\[contact\] Ada Lovelace")
        await send("template", "order")
        await ada.until("Hello Ada, your order of € 5.00 comes on Monday.")
        ada.type("/pick 1")
        assert (await sink.received("button"))["button"] == {"text": "Thanks", "payload": "YES-42"}

        listed = await send("interactive", "list")
        await ada.until("1. Soup")
        ada.type("/pick 2")
        response = await sink.received("interactive")
        reply = {"type": "list_reply", "list_reply": {"id": "pasta", "title": "Pasta"}}
        assert response["interactive"] == reply
        assert response["context"] == {"id": listed, "from": "15550000000"}

        # The picked item is marked as read, and the handset is notified. The next message is deleted again.
        await business.check_call("PUT", f"/v1/messages/{response['id']}", {"status": "read"})
        await ada.until("read by")
        ada.type("/location 48.2 16.4 Wien")
        place = await sink.received("location")
        ada.type("/delete")
        await sink.until(lambda body: body.get("statuses", [{}])[0].get("status") == "deleted")
        ada.type("/contact Bob +15550100002")
        ada.type("/react 👍")
        ada.type("/order c1 p1 p1")
        ada.type("/number +15550100002")
        ada.type("/unknown")
        for kind in ("contacts", "reaction", "order", "system", "unknown"):
            await sink.received(kind)
        deleted = [body for body in sink.bodies if body.get("statuses", [{}])[0].get("status") == "deleted"]
        assert deleted[0]["statuses"][0]["id"] == place["id"]
    for body in sink.bodies:
        webhook_schemas.check(body)
