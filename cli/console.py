"""The console of a command that must go on whatever becomes of its terminal."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading

# Lines that wait for a terminal that takes none (Ctrl-S, a pipe nobody reads); further ones are dropped and counted.
LIMIT = 1000
CLOSE_SECONDS = 1.0


class Console:
    """Prints lines in a thread of its own: `say` neither waits nor raises.

    Lines that could not be printed are counted, and the next one that can be says how many.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """descriptor: standard output by default."""
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor
        self._waiting: queue.Queue[str | None] = queue.Queue(LIMIT)
        self._lost = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._print, name="console", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Lines that could not be printed, and of which no later line has told."""
        return self._lost

    def say(self, line: str) -> None:
        """One line, soon."""
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._lose(1)

    def close(self) -> None:
        """Print what waits, for at most a second."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)

    def _lose(self, count: int) -> None:
        with self._lock:
            self._lost += count

    def _print(self) -> None:
        while (line := self._waiting.get()) is not None:
            with self._lock:
                lost, self._lost = self._lost, 0
            text = f"({lost} lines could not be shown)\n" if lost else ""
            left = memoryview(f"{text}{line}\n".encode(errors="replace"))
            try:
                # Not through `sys.stdout`, whose lock a write that never ends would keep at the end of the process.
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                self._lose(lost + 1)
