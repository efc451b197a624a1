"""Data that another process writes to a pipe."""

from __future__ import annotations

import asyncio
import os

import pytest
import uvloop

from tidings.aio import pipes


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_read_to_the_end_reads_everything_and_closes_the_descriptor_once(
    new_loop: type[asyncio.AbstractEventLoop],
) -> None:
    said = b"long " * 10_000

    async def read() -> None:
        pipe, write = os.pipe()
        reading = asyncio.create_task(pipes.read_to_the_end(pipe))
        await asyncio.to_thread(os.write, write, said)
        os.close(write)
        assert await reading == said
        # The next opened file gets the same descriptor, and keeps it.
        file = os.open(os.devnull, os.O_RDONLY)
        try:
            assert file == pipe
            for _ in range(10):
                await asyncio.sleep(0)
            os.fstat(file)
        finally:
            os.close(file)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(read())
