"""Console of a terminal: input and output of lines until it stops."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from handset.terminal.keyboard import Keyboard
from tidings.pages.printable import one_line

Write = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class TerminalConsole:
    """Console that the parts of a terminal share."""

    keyboard: Keyboard
    write: Write
    stop: asyncio.Event  # set when the terminal should stop

    async def ask(self, prompt: str) -> str | None:
        """Read a line. Returns `None` at the end of input or when `stop` is set."""
        line = asyncio.ensure_future(self.keyboard.read(prompt))
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait([line, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if line.done():
            return line.result()
        line.cancel()
        return None


def sentence(error: Exception) -> str:
    """Return an error's message as one line with a capital letter. The text may come from the network."""
    text = one_line(str(error))
    return text[:1].upper() + text[1:]
