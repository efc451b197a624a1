"""What another process says through a pipe."""

from __future__ import annotations

import asyncio
import os


async def read_to_the_end(pipe: int) -> bytes:
    """Everything until the other end is closed, by its line or by its process; then this end is closed, too.

    Not `connect_read_pipe`: uvloop closes its descriptor twice, the second time perhaps that of another file, which has
    got the number meanwhile.
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
