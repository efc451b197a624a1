"""`tidings listen`: webhook receiver that prints callbacks."""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import time
from collections.abc import Callable

from cli import callback_receiver, event_lines, guard, process
from tidings.aio import service


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the address to listen on and the output format."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8800, help="port to listen on (default 8800)")
    parser.add_argument("--json", action="store_true", help="print each complete callback as one line of JSON")


def run(options: argparse.Namespace) -> int:
    """Answer callbacks with 200 and print each event as a line, or each callback as JSON, until Ctrl-C."""
    process.run_loop(_listen(options.host, options.port, _show_json if options.json else _show_events))
    return 0


async def _listen(host: str, port: int, show: Callable[[bytes], None]) -> None:
    stop = asyncio.Event()
    service.stop_on_signals(stop)
    try:
        async with callback_receiver.receiving(host, port, show):
            print(f"waiting for callbacks at http://{host}:{port}/ (Ctrl-C to stop)", flush=True)
            await stop.wait()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise guard.CommandFailure(f"{host}:{port} is in use: name another port with --port") from error
    except OverflowError as error:
        raise guard.CommandFailure(f"{port} is not a port") from error


def _show_events(body: bytes) -> None:
    now = time.strftime("%H:%M:%S")
    print("".join(f"{now}  {line}\n" for line in event_lines.of(body)), end="", flush=True)


def _show_json(body: bytes) -> None:
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except ValueError:
        text = repr(body)
    print(text, flush=True)
