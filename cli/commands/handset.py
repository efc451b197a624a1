"""`tidings handset NUMBER`: runs a handset in this terminal."""

from __future__ import annotations

import argparse
import asyncio
import os

import handset.settings
from cli import process
from handset.settings import TerminalSettings
from handset.terminal.terminal import run_terminal
from tidings.aio import service
from tidings.observability import log


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the number of the handset."""
    parser.add_argument("number", metavar="NUMBER", help="the recipient's phone number, for example +15550100001")


def run(options: argparse.Namespace) -> int:
    """Show messages and send replies until the end of the input or Ctrl-C."""
    settings = handset.settings.TerminalSettings.read(os.environ)
    log.configure("handset", level=settings.log_level)
    return int(process.run_loop(_serve(options.number, settings)))


async def _serve(number: str, settings: TerminalSettings) -> int:
    stop = asyncio.Event()
    service.stop_on_signals(stop)
    return await run_terminal(number, settings, stop)
