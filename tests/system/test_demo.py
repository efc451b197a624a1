"""`tidings demo` shows a whole message to a person who has only this program."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

pytestmark = pytest.mark.whole_system

SECONDS = 60.0


async def test_the_demo_shows_a_message_with_three_statuses_and_exits_with_0() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "demo"),
        env={name: value for name, value in os.environ.items() if not name.startswith(("TIDINGS_", "WA_"))},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(SECONDS):
            raw, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
    said = raw.decode()
    assert process.returncode == 0, said
    for word in ("sent", "delivered", "read"):
        assert word in said, said
    assert "WARNING" not in said
