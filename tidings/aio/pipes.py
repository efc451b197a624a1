"""Read the output of another process from a pipe."""

from __future__ import annotations

import asyncio
import os


async def read_to_the_end(pipe: int) -> bytes:
    """Read until the other end is closed, explicitly or because its process ended; then close this end.

    Not `connect_read_pipe`: uvloop closes its descriptor twice, and by the second time the number may belong to another
    file.
    """
    loop = asyncio.get_running_loop()
    found = bytearray()
    ended: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        part = os.read(pipe, 65536)
        found.extend(part)
        if not part and not ended.done():
            ended.set_result(None)

    loop.add_reader(pipe, read)
    try:
        await ended
    finally:
        loop.remove_reader(pipe)
        os.close(pipe)
    return bytes(found)
