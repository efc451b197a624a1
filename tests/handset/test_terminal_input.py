"""Input of a terminal that is not UTF-8."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from handset.terminal.keyboard import Pipe
from tests.handset.conftest import LiveNetwork
from tests.handset.scripted import BUSINESS
from tests.handset.test_terminal import at_the_terminal, settings_for


async def test_input_that_is_not_utf_8_does_not_stop_the_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"caf\xe9\nnext\n")
    with (tmp_path / "input").open() as typed:
        monkeypatch.setattr(sys, "stdin", typed)
        keyboard = Pipe()
        async with asyncio.timeout(5):
            await keyboard.read("> ")
            assert await keyboard.read("> ") == "next"
            assert await keyboard.read("> ") is None


async def test_a_program_ends_in_an_orderly_way_while_it_waits_for_piped_input() -> None:
    program = (
        "import asyncio; from handset.terminal.keyboard import Pipe\n"
        "async def main():\n"
        "    pipe = Pipe()\n"
        "    await pipe.read('> ')\n"
        "    waiting = asyncio.create_task(pipe.read('> '))\n"
        "    for _ in range(100): await asyncio.sleep(0)\n"
        "    waiting.cancel()\n"
        "asyncio.run(main())"
    )
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"one\n")
    async with asyncio.timeout(60):
        # The input stays open.
        assert (await process.wait(), await process.stderr.read()) == (0, b"")


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
