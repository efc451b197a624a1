"""`tidings migrate`."""

from __future__ import annotations

import argparse
import asyncio
import os

from cli import process, tables
from tidings.runtime import settings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: the databases are named by the environment."""


def run(options: argparse.Namespace) -> int:
    """Upgrade the tables of the business and of the network, and say from what to what."""
    env = settings.Environment(os.environ)
    process.configure_logging("migrate", env)
    data_dir = settings.data_dir(env)
    databases = {family: settings.read_database(env, data_dir, family) for family in tables.FAMILIES}
    env.check()
    asyncio.run(tables.upgrade(databases, print))
    return 0
