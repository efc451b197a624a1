"""Console: no process waits for a terminal or fails because of it."""

from __future__ import annotations

import contextlib
import os
import time

from cli.commands import up
from cli.commands.up import Console
from tests.cli.terminal import open_terminal


def test_lines_are_written_in_order_and_close_waits_for_them() -> None:
    reading, writing = os.pipe()
    printer = Console(writing)
    for number in range(100):
        printer.print_line(f"line {number} ☂")
    printer.close()
    os.close(writing)
    with os.fdopen(reading, "r", encoding="utf-8") as end:
        assert end.read().splitlines() == [f"line {number} ☂" for number in range(100)]


def test_a_closed_terminal_or_a_full_device_raises_nothing() -> None:
    ours, theirs = open_terminal()
    os.close(ours)
    full = os.open("/dev/full", os.O_WRONLY)
    for descriptor in (theirs, full):
        printer = Console(descriptor)
        printer.print_line("one")
        printer.print_line("two")
        printer.close()
        assert printer.lost == 2
        os.close(descriptor)


def test_a_blocked_terminal_delays_nothing_and_later_shows_the_lost_lines() -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    printer = Console(writing)
    started = time.monotonic()
    for _ in range(up.LIMIT + 200):
        printer.print_line("x" * 4000)
    assert time.monotonic() - started < 30
    assert printer.lost > 100

    def read() -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(reading, 1 << 20)
        return b""

    seen = b""
    while seen.count(b"x\n") < up.LIMIT:
        seen += read()
    printer.print_line("after")
    while b"after" not in seen:
        seen += read()
    assert b" lines could not be shown)\n" in seen
    printer.close()
    os.close(reading)
    os.close(writing)
