"""`tidings handset NUMBER`: runs a handset in this terminal. `tidings handset --web` serves handsets as pages."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os

import handset.settings
from cli import guard, process
from handset.settings import TerminalSettings
from handset.terminal.terminal import run_terminal
from tidings.aio import service
from tidings.observability import log


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number of the handset, and the choice of pages instead."""
    parser.add_argument(
        "number", metavar="NUMBER", nargs="?", help="the recipient's phone number, for example +15550100001"
    )
    parser.add_argument(
        "--web", action="store_true", help="serve any number of handsets as pages in the browser, in this process"
    )
    process.add_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Show messages and send replies until the end of the input or Ctrl-C."""
    if options.web and options.number:
        raise guard.CommandFailure("name a phone number or use --web, not both: pages open any number")
    if options.web:
        # A handset in a terminal does not load the web server.
        return int(importlib.import_module("cli.handset_pages").run(options))
    if not options.number:
        raise guard.CommandFailure("name the phone number, or use --web")
    settings = handset.settings.TerminalSettings.read(os.environ)
    log.configure("handset", level=settings.log_level)
    return int(process.run_loop(_serve(options.number, settings)))


async def _serve(number: str, settings: TerminalSettings) -> int:
    stop = asyncio.Event()
    service.stop_on_signals(stop)
    return await run_terminal(number, settings, stop)
