"""`tidings webapp`: runs a Webapp."""

from __future__ import annotations

import argparse
import functools

import webapp.services
import webapp.settings
from cli import process

add_arguments = process.add_arguments


def run(options: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    serve = functools.partial(webapp.services.run, show=_show)
    return process.run("webapp", webapp.settings.Settings.read, serve, options)


def _show(secret: str) -> None:
    # Standard output, which is not the log.
    print(secret, flush=True)
