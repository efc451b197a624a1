"""Lost sessions of the business on real processes: whichever side writes first, each message arrives exactly
once."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from harness.client import Business
from harness.installation import Installation
from tests.handset.test_terminal import ADA, Session, at_the_terminal
from tests.network.documented_device import DocumentedDevice, to_text
from tests.system.test_identity import handset
from tests.system.webhook import Webhook

pytestmark = pytest.mark.whole_system

BUSINESS, BEN = "15550000000", "15550100002"
PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


class Scene:
    """Business, person at our terminal, and a device that was written from the documentation alone."""

    def __init__(
        self, installation: Installation, business: Business, webhook: Webhook, ada: Session, ben: DocumentedDevice
    ) -> None:
        self.installation = installation
        self.business = business
        self.webhook = webhook
        self.ada = ada
        self.ben = ben

    async def tell(self, to: str, text: str) -> str:
        body = {"to": to, "type": "text", "text": {"body": text}}
        message_id: str = (await self.business.check_call("POST", "/v1/messages", body))["messages"][0]["id"]
        return message_id

    async def both_write(self, about: str) -> None:
        """Send a message from each recipient to the business, which receives both."""
        self.ada.type(f"{about}, from Ada")
        await self.ben.write(BUSINESS, f"{about}, from Ben")
        for name in ("Ada", "Ben"):
            await self.until_received(f"{about}, from {name}")

    async def until_both_received(self, about: str) -> None:
        """Send a message from the business to each recipient. Both show it, and the business gets their receipts."""
        ids = [await self.tell(ADA, f"{about}, to Ada"), await self.tell(BEN, f"{about}, to Ben")]
        await self.ada.until(f"{about}, to Ada")
        await self.ben.until(lambda: f"{about}, to Ben" in self.shown_by_ben())
        for message_id in ids:
            await self.webhook.until(lambda body, id=message_id: (id, "delivered") in statuses(body))  # type: ignore[misc]

    async def until_received(self, text: str) -> None:
        await self.webhook.until(lambda body: text in texts([body]))

    def shown_by_ben(self) -> Sequence[str]:
        return [content["text"]["body"] for _, _, content in self.ben.shown]

    async def restore(self) -> None:
        """Restore a backup that was made just before: all sessions are lost, keys and webhook stay."""
        data = (await self.business.check_call("POST", "/v1/settings/backup", {"password": "sealed26"}))["settings"][
            "data"
        ]
        await self.business.check_call("POST", "/v1/settings/restore", {"password": "sealed26", "data": data})

    async def delete_sessions(self) -> None:
        """Delete the sessions with the statements of the operator's documentation, word for word."""
        (script,) = re.findall(r"```sql\n(DELETE FROM sessions;.*?)```", PAGE.read_text(), re.DOTALL)
        coreapp = self.installation.processes["coreapp"]
        await coreapp.stop()
        assert self.installation.read_value("business", "SELECT COUNT(*) FROM sessions") == 2
        self.installation.change("business", script.split(";\n")[:-1])
        await coreapp.start()

    def check(self, heard: int, shown: int) -> None:
        """Check that the business and each recipient got these numbers of texts, none twice, and no errors."""
        assert not [body for body in self.webhook.bodies if "errors" in body]
        assert not [status for body in self.webhook.bodies for _, status in statuses(body) if status == "failed"]
        at_the_business = texts(self.webhook.bodies)
        assert (len(at_the_business), len(set(at_the_business))) == (heard, heard), at_the_business
        at_adas = [line for line in self.ada.lines if re.search(rf"\+{BUSINESS}: ", line)]
        assert (len(at_adas), len(set(at_adas))) == (shown, shown), at_adas
        at_ben = self.shown_by_ben()
        assert (len(at_ben), len(set(at_ben))) == (shown, shown), at_ben


def statuses(body: dict[str, object]) -> Sequence[tuple[str, str]]:
    return [(status["id"], status["status"]) for status in body.get("statuses", ())]  # type: ignore[attr-defined]


def texts(bodies: Sequence[dict[str, object]]) -> Sequence[str]:
    return [m["text"]["body"] for body in bodies for m in body.get("messages", ())]  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def scene(installation: Installation, webhook: tuple[Webhook, str], folder: Path) -> AsyncIterator[Scene]:
    """Scene in which each side has read messages of the other."""
    sink, url = webhook
    await installation.start(("network", "coreapp", "webapp"))
    business = await installation.business()
    await business.set_webhook(url)
    key = json.loads((installation.data_dir / "secrets" / "network.json").read_text())["registration_key"]
    ben = DocumentedDevice(installation.common["TIDINGS_NETWORK_HTTP_URL"], BEN, kyber=True)
    await ben.register(key=key)
    await ben.connect()
    try:
        async with at_the_terminal(handset(installation, folder / "ada")) as ada:
            await ada.until("Connected")
            await business.check_contacts([ADA, BEN])
            made = Scene(installation, business, sink, ada, ben)
            await made.until_both_received("hello")
            await made.both_write("hello yourself")
            yield made
    finally:
        await ben.disconnect()


async def test_after_a_restore_first_messages_arrive_once_in_either_direction(
    installation: Installation, webhook: tuple[Webhook, str], tmp_path: Path
) -> None:
    async with scene(installation, webhook, tmp_path) as made:
        await made.restore()
        await made.both_write("first after a restore")
        await made.until_both_received("answered")
        await made.restore()
        await made.until_both_received("first after another")
        await made.both_write("answered on that")
        made.check(heard=6, shown=3)


async def test_after_session_deletion_first_messages_arrive_once_in_either_direction(
    installation: Installation, webhook: tuple[Webhook, str], tmp_path: Path
) -> None:
    async with scene(installation, webhook, tmp_path) as made:
        await made.delete_sessions()
        await made.both_write("first")
        await made.until_both_received("answered")
        await made.delete_sessions()
        await made.until_both_received("first this time")
        await made.both_write("answered on that")
        made.check(heard=6, shown=3)


async def test_after_garbage_on_lost_sessions_the_first_valid_message_arrives_once(
    installation: Installation, webhook: tuple[Webhook, str], tmp_path: Path
) -> None:
    async with scene(installation, webhook, tmp_path) as made:
        await made.restore()
        for number in range(200):
            kind, version = ("prekey", b"\x44") if number % 2 else ("message", b"\x33")
            await made.ben.send_raw(BUSINESS, kind, to_text(version + b"garbage %d" % number))
        await made.both_write("true")
        await made.until_both_received("answered")
        made.check(heard=4, shown=2)
