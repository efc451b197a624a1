"""Group on real processes: created through the API, joined at terminals and by robots, read, answered, left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handset import settings
from handset.settings import TerminalSettings
from harness.client import UnexpectedResponse
from harness.installation import Installation
from tests.coreapp import webhook_schemas
from tests.handset.test_terminal import ADA, at_the_terminal
from tests.system.webhook import Webhook
from tidings.installation.settings import DatabaseSettings

pytestmark = pytest.mark.whole_system

BOB = "15550990077"
BUSINESS = "15550000000"
ROBOT = "15550110000"


def terminal(installation: Installation, folder: Path) -> TerminalSettings:
    """Return the settings of a separate phone."""
    folder.mkdir()
    found = settings.TerminalSettings.read({**installation.common, "TIDINGS_HANDSET_NAME": folder.name})
    database = DatabaseSettings(f"sqlite+aiosqlite:///{folder / 'handset.db'}", pool_size=3)
    return found.model_copy(update={"data_dir": folder, "database": database})


def status_of(sink: Webhook, message_id: str, name: str, recipient: str) -> Any:
    return sink.until(
        lambda body: any(
            (entry["id"], entry["status"], entry["recipient_id"]) == (message_id, name, recipient)
            for entry in body.get("statuses", ())
        )
    )


async def test_a_group_is_created_joined_used_and_left(
    installation: Installation, webhook: tuple[Webhook, str], tmp_path: Path
) -> None:
    sink, url = webhook
    await installation.start()
    business = await installation.business()
    await business.set_webhook(url)
    (group,) = (await business.check_call("POST", "/v1/groups", {"subject": "Deliveries"}))["groups"]
    path = f"/v1/groups/{group['id']}"
    (invite,) = (await business.check_call("GET", f"{path}/invite"))["groups"]

    async def send(text: str) -> str:
        message = {"to": group["id"], "recipient_type": "group", "type": "text", "text": {"body": text}}
        sent: str = (await business.check_call("POST", "/v1/messages", message))["messages"][0]["id"]
        return sent

    async def system(kind: str) -> dict[str, Any]:
        body = await sink.until(lambda body: body.get("messages", [{}])[0].get("system", {}).get("type") == kind)
        found: dict[str, Any] = body["messages"][0]
        return found

    async with at_the_terminal(terminal(installation, tmp_path / "Ada")) as ada:
        await ada.until("Connected")
        async with at_the_terminal(terminal(installation, tmp_path / "Bob"), f"+{BOB}") as bob:
            await bob.until("Connected")
            for phone in (ada, bob):
                phone.type(f"/group join {invite['link']}")
                await phone.until("You are in Deliveries")
            assert (await system("group_created"))["from"] == BUSINESS
            assert (await system("group_user_joined"))["system"]["operator"] == ADA
            await business.check_contacts([ROBOT])
            text = {"to": ROBOT, "type": "text", "text": {"body": f"Join us: {invite['link']}"}}
            await business.check_call("POST", "/v1/messages", text)
            await sink.until(lambda body: body.get("messages", [{}])[0].get("from") == ROBOT)

            first = await send("We come on Monday")
            for phone in (ada, bob):
                await phone.until(rf"\[Deliveries\] \+{BUSINESS}: We come on Monday")
            await status_of(sink, first, "sent", group["id"])
            for number in (ADA, BOB, ROBOT):
                await status_of(sink, first, "read", number)

            bob.type("Not on Tuesday?")
            await ada.until(rf"\[Deliveries\] \+{BOB}: Not on Tuesday\?")
            received = await sink.received("text")
            assert (received["from"], received["group_id"]) == (BOB, group["id"])
            await business.check_call("PUT", f"/v1/messages/{received['id']}", {"status": "read"})
            await bob.until(rf"read by \+{BUSINESS}")

            await business.check_call("DELETE", f"{path}/participants", {"wa_ids": [BOB]})
            await bob.until(r"\* ")
            second = await send("Bob is not with us any more")
            await ada.until("Bob is not with us any more")
            await status_of(sink, second, "read", ADA)
            (found,) = (await business.check_call("GET", path))["groups"]
            assert found["participants"] == [BUSINESS, ADA, ROBOT]
            third = await send("The end")
            await status_of(sink, third, "read", ADA)
            assert not any("not with us" in line or "The end" in line for line in bob.lines)
        await business.check_call("POST", f"{path}/leave")
        await ada.until(rf"\+{BUSINESS} has left")
    for body in sink.bodies:
        webhook_schemas.check(body)
    with pytest.raises(UnexpectedResponse, match="1003"):
        await send("Anybody?")
