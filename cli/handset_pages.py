"""`tidings handset --web`: the process that serves handsets as pages."""

from __future__ import annotations

import argparse
import asyncio
import sys

from cli import process
from handset.settings import WebSettings
from handset.web.services import PageAddress, run_web


def run(options: argparse.Namespace) -> int:
    """Serve the pages until SIGINT or SIGTERM, and print their link. `tidings up` prints that of its child itself."""
    serve = _serve_and_print if options.ready_fd is None else run_web
    return process.run("handset", WebSettings.read, serve, options)


async def _serve_and_print(settings: WebSettings, stop: asyncio.Event, ready: process.Ready) -> None:
    def show(address: PageAddress) -> None:
        sys.stdout.write(f"Open this link once, within 12 hours: {address.link}\n")
        sys.stdout.flush()
        ready({"url": address.url})

    await run_web(settings, stop, show)
