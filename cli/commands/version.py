"""`tidings version`: prints the version."""

from __future__ import annotations

import argparse

import tidings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing."""


def run(options: argparse.Namespace) -> int:
    """Print the version."""
    print(tidings.__version__)
    return 0
