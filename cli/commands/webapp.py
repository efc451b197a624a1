"""`tidings webapp`."""

from __future__ import annotations

import argparse

import webapp.services
import webapp.settings
from cli import process

add_arguments = process.add_arguments


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    return process.run("webapp", webapp.settings.Settings.read, webapp.services.run, options)
