"""`tidings doctor`: checks an installation from this machine, and prints what is wrong and how to correct it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence

from cli import guard, process
from cli.counts import counted
from cli.doctor import findings
from cli.doctor.findings import Finding, Level
from cli.doctor.plan import CheckPlan, DoctorOptions
from cli.process_settings import KINDS
from tidings.observability import log

_WORDS = {Level.FINE: "ok", Level.WARNING: "warning", Level.ERROR: "ERROR"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the processes to check, and the checks that are allowed."""
    parser.add_argument(
        "processes",
        nargs="*",
        metavar="PROCESS",
        help=f"processes that run in this environment: some of {', '.join(KINDS)} (default: all)",
    )
    parser.add_argument("--quick", action="store_true", help="skip measurements that write")
    parser.add_argument(
        "--post",
        action="store_true",
        help="POST a signed {} to the webhook; without it the webhook receives only OPTIONS",
    )
    parser.add_argument("--all", action="store_true", help="list passed checks too (always with --json)")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.epilog = "Exit status: 0 without findings, 1 with warnings, 2 with errors."


def run(options: argparse.Namespace) -> int:
    """Run every check that applies to this environment. Returns the level of the worst finding."""
    wrong = [name for name in options.processes if name not in KINDS]
    if wrong:
        print(f"tidings doctor: {wrong[0]!r} is none of {', '.join(KINDS)}", file=sys.stderr)
        raise SystemExit(guard.WRONG_USE)
    # The findings report what the library would log.
    log.configure("doctor", level="ERROR", write=_drop)
    wanted = DoctorOptions(options.processes or tuple(KINDS), quick=options.quick, post=options.post)

    def report(found: Sequence[Finding]) -> None:
        if not options.json:
            _print_lines(found, everything=options.all)

    found = process.run_loop(_check_all(CheckPlan(os.environ, wanted), report))
    if options.json:
        _print_object(found)
    else:
        _print_counts(found)
    return int(findings.worst(found))


async def _check_all(plan: CheckPlan, report: Callable[[Sequence[Finding]], None]) -> Sequence[Finding]:
    try:
        return await findings.run_groups(plan.groups(), report=report)
    finally:
        await plan.close()


def _print_lines(found: Sequence[Finding], *, everything: bool) -> None:
    for finding in found:
        if finding.level is Level.FINE and not everything:
            continue
        print(f"{_WORDS[finding.level]:<8} {finding.check}: {finding.text}", flush=True)
        if finding.remedy:
            print(f"         → {finding.remedy}", flush=True)


def _print_counts(found: Sequence[Finding]) -> None:
    counts = {level: sum(finding.level is level for finding in found) for level in Level}
    wrong = [counted(counts[level], noun) for level, noun in ((Level.ERROR, "error"), (Level.WARNING, "warning"))]
    print(f"{', '.join(wrong)}, {counts[Level.FINE]} fine")


def _print_object(found: Sequence[Finding]) -> None:
    entries = [
        {"check": each.check, "level": each.level.name.lower(), "text": each.text, "remedy": each.remedy or None}
        for each in found
    ]
    print(json.dumps({"status": findings.worst(found).name.lower(), "findings": entries}, indent=1, ensure_ascii=False))


def _drop(line: str) -> None:
    pass
