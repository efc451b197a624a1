"""Input of a terminal that is not UTF-8."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest

from handset.terminal.keyboard import Pipe
from tests.handset.conftest import LiveNetwork
from tests.handset.scripted import BUSINESS
from tests.handset.test_terminal import at_the_terminal, settings_for


async def test_input_that_is_not_utf_8_does_not_stop_the_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\nnext\n"), encoding="utf-8"))
    keyboard = Pipe()
    async with asyncio.timeout(5):
        await keyboard.read("> ")
        assert await keyboard.read("> ") == "next"


async def test_a_line_that_cannot_be_encoded_is_refused_and_the_terminal_goes_on(
    live_network: LiveNetwork, tmp_path: Path
) -> None:
    async with at_the_terminal(settings_for(live_network, tmp_path)) as session:
        await session.until("This is")
        session.type(f"/to {BUSINESS}")
        await session.until("goes to")
        # As Python reads a byte that is not UTF-8 in the C locale.
        session.type("caf\udce9")
        await session.until("not sent")
