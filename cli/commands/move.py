"""`tidings move`: shows what becomes of the configuration of an On-Premises installation."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from cli.moving import check, findings
from cli.moving.findings import MoveResult


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    action = actions.add_parser("check", help="print what becomes of each part of an old configuration")
    action.add_argument(
        "--from",
        dest="paths",
        action="append",
        required=True,
        type=Path,
        metavar="PATH",
        help="directory, saved response of the old API, PEM file, Compose file or env file; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Print one line for each part, then a summary. Returns 1 if a part is refused. Changes nothing."""
    parts = check.check(options.paths, datetime.datetime.now(datetime.UTC))
    for part in parts:
        print(part)
    print(findings.summary(parts))
    return int(any(part.result is MoveResult.REFUSED for part in parts))
