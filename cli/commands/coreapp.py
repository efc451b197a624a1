"""`tidings coreapp`: runs a Coreapp."""

from __future__ import annotations

import argparse

import coreapp.services
import coreapp.settings
from cli import process

add_arguments = process.add_arguments


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    return process.run("coreapp", coreapp.settings.Settings.read, coreapp.services.run, options)
