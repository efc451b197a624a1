"""The console of a terminal: lines come in, lines go out, until it is told to stop."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

from handset.terminal.keyboard import Keyboard

Write = Callable[[str], None]


@dataclasses.dataclass(frozen=True, slots=True)
class TerminalConsole:
    """The console that the parts of a terminal share. stop: set when it is to end."""

    keyboard: Keyboard
    write: Write
    stop: asyncio.Event

    async def ask(self, prompt: str) -> str | None:
        """A line, or `None` at the end of input or when it is to end."""
        line = asyncio.ensure_future(self.keyboard.read(prompt))
        stopping = asyncio.ensure_future(self.stop.wait())
        await asyncio.wait([line, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if line.done():
            return line.result()
        line.cancel()
        return None


def sentence(error: Exception) -> str:
    """An error's message with a capital letter."""
    text = str(error)
    return text[:1].upper() + text[1:]
