"""Terminal: files that cannot be read, and withdrawals one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.handset.business import business
from tests.handset.conftest import LiveNetwork
from tests.handset.scripted import BUSINESS
from tests.handset.test_terminal import at_the_terminal, settings_for


@pytest.mark.parametrize("command", ["/send a\0b", "/send ~a\0b/c", "/send /proc/self/mem"], ids=ascii)
async def test_a_file_that_cannot_be_read_is_reported_and_the_terminal_goes_on(
    live_network: LiveNetwork, tmp_path: Path, command: str
) -> None:
    async with (
        business(live_network, tmp_path) as sender,
        at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada,
    ):
        await ada.until("Connected")
        ada.type(f"/to {BUSINESS}")
        ada.type(command)
        ada.type("still here")
        await ada.until("^! not sent: ")
        await sender.until(lambda: [message.text for message in sender.messages] == ["still here"])


async def test_a_message_is_withdrawn_once(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with (
        business(live_network, tmp_path) as sender,
        at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada,
    ):
        await ada.until("Connected")
        for line in (f"/to {BUSINESS}", "one", "/delete", "/delete", "last"):
            ada.type(line)
        await sender.until(lambda: bool(sender.messages) and sender.messages[-1].text == "last")
        withdrawn = [json.loads(m.raw)["deleted"]["id"] for m in sender.messages if m.type == "deleted"]
        # A withdrawal is no message that can be withdrawn.
        assert withdrawn == [sender.messages[0].id]


async def test_a_withdrawal_after_a_reaction_withdraws_the_message(live_network: LiveNetwork, tmp_path: Path) -> None:
    async with (
        business(live_network, tmp_path) as sender,
        at_the_terminal(settings_for(live_network, tmp_path / "ada")) as ada,
    ):
        await ada.until("Connected")
        await sender.send("15550100001", "hello")
        await ada.until("hello")
        for line in ("one", "/react 👍", "/delete", "last"):
            ada.type(line)
        await sender.until(lambda: bool(sender.messages) and sender.messages[-1].text == "last")
        (withdrawn,) = [json.loads(m.raw)["deleted"]["id"] for m in sender.messages if m.type == "deleted"]
        assert withdrawn == sender.messages[0].id
