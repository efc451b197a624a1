"""`tidings demo`: runs a temporary installation and sends one message through it."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

from cli import demonstration, guard, process
from cli.installation import Installation
from tidings.installation.settings import LogSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the time limit."""
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for everything (60)")


def run(options: argparse.Namespace) -> int:
    """Run the demonstration. Returns 0 if the handset decrypted the text and all callbacks and the reply arrived.

    Raises `CommandFailure` otherwise.
    """
    if not 0 <= options.timeout <= 3600:
        raise guard.CommandFailure("--timeout is not from 0 to 3600 seconds")
    process.configure_logging("demo", LogSettings(log_level="warning"))
    with tempfile.TemporaryDirectory(prefix="tidings-demo-") as directory:
        return asyncio.run(_demo(Path(directory), options.timeout))


async def _demo(directory: Path, timeout: float) -> int:
    task = asyncio.current_task()
    assert task is not None
    # Cancel the task, so that the children are stopped and the directory is removed. Setting a handler also works where
    # SIGINT is ignored, as for a background job of a script.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    started = time.monotonic()

    def print_line(line: str) -> None:
        print(f"{time.monotonic() - started:5.1f} s  {line}", flush=True)

    installation = Installation(demonstration.environment(os.environ, directory), print_line)
    installation.read()
    try:
        where = await installation.start()
        print_line(f"a whole system runs in {directory}, its API at {where.api_url}")
        missing = await demonstration.Demonstration(where, directory, print_line).run(timeout)
        if missing:
            raise guard.CommandFailure(f"missing after {timeout:.0f} s: {', '.join(missing)}")
        print_line("everything came; stopping")
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        await installation.close()
    return 0
