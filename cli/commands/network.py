"""`tidings network`."""

from __future__ import annotations

import argparse

import network.services
import network.settings
from cli import process

add_arguments = process.add_arguments


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    return process.run("network", network.settings.Settings.read, network.services.run, options)
