"""`tidings robots`."""

from __future__ import annotations

import argparse

import handset.services
import handset.settings
from tidings.cli import process

add_arguments = process.add_arguments


def run(options: argparse.Namespace) -> int:
    """Answer messages until SIGINT or SIGTERM."""
    return process.run("robots", handset.settings.read_robots, handset.services.run_robots, options)
