"""Input of typed lines: an editing prompt on a terminal, and plain standard input otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import threading
from collections.abc import Iterator
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.patch_stdout import patch_stdout


class Keyboard(Protocol):
    async def read(self, prompt: str) -> str | None:
        """Read the next line without its end. Returns `None` at the end of input, Ctrl-C or Ctrl-D."""


class Prompt:
    """Prompt that keeps the typed line below the output."""

    def __init__(self) -> None:
        self._session: PromptSession[str] = PromptSession()

    async def read(self, prompt: str) -> str | None:
        try:
            return await self._session.prompt_async(prompt)
        except (EOFError, KeyboardInterrupt):
            return None


class Pipe:
    """Lines of standard input, in UTF-8. Other bytes are read as the replacement character.

    A daemon thread reads them, since reading a file cannot be awaited. It does not delay the end of the process,
    and reads at most one line ahead.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._wanted = threading.Semaphore(0)
        threading.Thread(target=self._work, name="standard input", daemon=True).start()

    async def read(self, prompt: str) -> str | None:
        self._wanted.release()
        return await self._lines.get()

    def _work(self) -> None:
        self._wanted.acquire()
        # Not `sys.stdin` itself: the interpreter closes that at its end, and aborts while a thread is reading from it.
        with open(sys.stdin.fileno(), "rb", closefd=False) as typed:
            while line := typed.readline():
                self._put(line.decode("utf-8", "replace").rstrip("\r\n"))
                self._wanted.acquire()
        self._put(None)

    def _put(self, line: str | None) -> None:
        # The loop is closed if the terminal has stopped in between.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


@contextlib.contextmanager
def opened(given: Keyboard | None) -> Iterator[Keyboard]:
    """Provide the keyboard: the given one, or one for standard input."""
    if given is not None:
        yield given
    elif sys.stdin.isatty() and sys.stdout.isatty():
        with patch_stdout():
            yield Prompt()
    else:
        yield Pipe()


def columns() -> int:
    """Return the width of the terminal in columns; 0 when standard output is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def write_line(text: str) -> None:
    """Print one line and flush it."""
    print(text, flush=True)  # noqa: T201
