"""Console of a command that must keep running when its terminal blocks or closes."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading

# Lines queued while the terminal blocks (Ctrl-S, a pipe without a reader). Further lines are dropped and counted.
LIMIT = 1000
CLOSE_SECONDS = 1.0


class Console:
    """Prints lines from a separate thread, so that `say` neither blocks nor raises.

    Lines that could not be printed are counted. The count is printed before the next line that can be printed.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        """Start the printing thread.

        descriptor: file descriptor to print to; None for standard output.
        """
        self._descriptor = sys.stdout.fileno() if descriptor is None else descriptor
        self._waiting: queue.Queue[str | None] = queue.Queue(LIMIT)
        self._lost = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._print, name="console", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> int:
        """Number of lines that could not be printed and have not been reported yet."""
        return self._lost

    def say(self, line: str) -> None:
        """Queue one line for printing."""
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._lose(1)

    def close(self) -> None:
        """Print the queued lines. Waits at most 1 second for room in a full queue and 1 second for the thread."""
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
                # `os.write` instead of `sys.stdout`: a blocked write would hold its lock and block process exit.
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                self._lose(lost + 1)
