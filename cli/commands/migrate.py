"""`tidings migrate`: upgrades the tables."""

from __future__ import annotations

import argparse
import asyncio
import os

from cli import process, tables
from cli.settings import TableSettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: environment variables name the databases."""


def run(options: argparse.Namespace) -> int:
    """Upgrade the tables of the business and of the network, and print the revisions before and after."""
    settings = TableSettings.read(os.environ)
    process.configure_logging("migrate", settings)
    asyncio.run(tables.upgrade(settings.families, print))
    return 0
