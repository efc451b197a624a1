"""`tidings up`: runs a whole installation on this machine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import tidings
from cli import process, unread_variables
from cli.counts import counted
from cli.installation import Installation, InstallationAddresses
from tidings.installation.settings import LogSettings
from tidings.secrets import private_files
from tidings.secrets.first_password import ADMINISTRATOR

# Lines queued while the terminal blocks (Ctrl-S, a pipe without a reader). Further lines are dropped and counted.
LIMIT = 1000
CLOSE_SECONDS = 1.0


class Console:
    """Prints lines from a separate thread, so that `print_line` neither blocks nor raises.

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

    def print_line(self, line: str) -> None:
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
            text = f"({counted(lost, 'line')} could not be shown)\n" if lost else ""
            left = memoryview(f"{text}{line}\n".encode(errors="replace"))
            try:
                # `os.write` instead of `sys.stdout`: a blocked write would hold its lock and block process exit.
                while left:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                self._lose(lost + 1)


NEW_PASSWORD = "Tidings-2026!"  # noqa: S105
# Seconds that an unfinished start has to end when the command is stopped.
START_GRACE = 5.0
READER = "15550110001"
PERSON = "15550100001"
ROBOTS = {
    "11": "reads at once",
    "12": "is delivered but never reads",
    "13": "is registered but offline",
    "14": "reads and echoes the text back",
    "15": "reads slowly (1 to 5 s)",
    "16": "does not exist",
    "17": "has blocked the business",
    "18": "answers by the type that a text names: image, location, order …",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: settings come from the environment."""


def run(options: argparse.Namespace) -> int:
    """Run all processes until SIGINT, SIGTERM or SIGHUP. A second SIGINT or SIGTERM kills all processes at once."""
    console = Console()
    try:
        level = os.environ.get("TIDINGS_LOG_LEVEL") or "warning"
        process.configure_logging("up", LogSettings.read({"TIDINGS_LOG_LEVEL": level}), console.print_line)
        unread_variables.report(os.environ)
        installation = Installation(os.environ, console.print_line)
        private_files.restrict_all(installation.data_dir)
        installation.read()
        asyncio.run(_stay(installation, console.print_line))
    finally:
        console.close()
    return 0


async def _stay(installation: Installation, print_line: Callable[[str], None]) -> None:
    started = time.monotonic()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end_at_once(number: int, _: object) -> None:
        installation.supervisor.kill()
        os._exit(128 + number)

    def begin_to_stop() -> None:
        stop.set()
        # From now on the handlers work without the event loop. SIGHUP keeps its handler: a closing terminal sends it
        # more than once.
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
            signal.signal(number, end_at_once)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, begin_to_stop)
    starting = asyncio.create_task(installation.start())
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            where = starting.result()
            print_line(describe(where, installation, time.monotonic() - started))
            await stop.wait()
    finally:
        stopping.cancel()
        starting.cancel()
        if stop.is_set():
            print_line("stopping ... (press Ctrl-C again to kill)")
        await asyncio.wait([starting], timeout=START_GRACE)
        await installation.close()
    print_line("stopped")


def describe(where: InstallationAddresses, installation: Installation, seconds: float) -> str:
    """Return the summary to print on the console.

    seconds: duration of the start.
    """
    last = where.robots_per_kind - 1
    robots = "\n".join(
        f"    {prefix}{kind}0000 … {prefix}{kind}{last:04d}  {what}"
        for prefix in where.robots_prefixes
        for kind, what in ROBOTS.items()
    )
    reader = f"{where.robots_prefixes[0]}110001" if where.robots_prefixes else READER
    served_safely = where.api_url.startswith("https:")
    https = "as the API; POST /v1/certificates/external" if served_safely else "TIDINGS_API_TLS=1 before this command"
    # The certificate was issued here, so curl cannot verify it (`-k`).
    curl = "curl -sk" if served_safely else "curl -s"
    if where.first_password:
        credentials = f"{ADMINISTRATOR} / {where.first_password}, must be changed at the first login"
        password, body = where.first_password, f'{{"new_password": "{NEW_PASSWORD}"}}'
    else:
        credentials = f"{ADMINISTRATOR} and its configured password"
        password, body = "PASSWORD", "{}"
    command = os.path.relpath(Path(sys.executable).with_name("tidings"))
    chosen = {"TIDINGS_DATA_DIR": str(installation.data_dir), "TIDINGS_NETWORK_HTTP_URL": where.network_url}
    defaults = {str(Path("data").absolute()), "http://127.0.0.1:9095"}
    variables = "".join(f"{name}={value} " for name, value in chosen.items() if value not in defaults)
    opened = ", ".join(f"{name}={value}" for name, value in installation.loopback_variables.items())
    return f"""
Tidings {tidings.__version__} is up, after {seconds:.1f} s. Ctrl-C stops it.

  API            {where.api_url}  (/docs for the pages about it, /metrics for Prometheus)
  HTTPS          {https}
  console        {where.console or "TIDINGS_CONSOLE=1 before this command"}
  login          {credentials}
  network        {where.network_url}  (devices, HTTP and WebSocket), {where.network_tcp}  (TCP)
  coreapp        {where.coreapp_link}, {where.coreapp_metrics}
  handsets       {where.handset_link or "no page: see the messages above, or TIDINGS_HANDSET_WEB=0 is set"}
  robots' log    {where.robots_log or "none: the robots are not running yet"}
  for trying     {opened or "nothing is set"}
  data, logs     {installation.data_dir}, {installation.data_dir / "logs"}

  Robots:
{robots}

  Log in, ask for a contact, send it a message:

    TOKEN=$({curl} -u '{ADMINISTRATOR}:{password}' -H 'Content-Type: application/json' -d '{body}' \\
      {where.api_url}/v1/users/login | sed 's/.*"token": *"\\([^"]*\\)".*/\\1/')
    {curl} -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\
      -d '{{"blocking": "wait", "contacts": ["+{reader}"]}}' {where.api_url}/v1/contacts
    {curl} -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \\
      -d '{{"to": "{reader}", "type": "text", "text": {{"body": "Hello"}}}}' {where.api_url}/v1/messages

  Be a recipient yourself, by the link above (it opens once) or in another terminal:

    {variables}{command} handset +{PERSON}
"""
