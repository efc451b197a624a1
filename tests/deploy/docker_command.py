"""The subset of `docker compose` that the commands of the guide use, executed by the tests' podman.

Usage: docker_command DIRECTORY compose -f FILE [--profile NAME] up|exec|logs|down …
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.deploy.podman import ROOT, CommandFailed, Podman
from tests.deploy.project import Project


def main(words: Sequence[str]) -> int:
    """Execute the command like `docker compose`. Words that `docker compose` does not know are refused."""
    parser = argparse.ArgumentParser(prog="docker", allow_abbrev=False)
    parser.add_argument("directory", type=Path)
    compose = parser.add_subparsers(required=True).add_parser("compose", allow_abbrev=False)
    compose.add_argument("-f", "--file", required=True)
    compose.add_argument("--profile", choices=["robots"])
    actions = compose.add_subparsers(dest="action", required=True)
    up = actions.add_parser("up", allow_abbrev=False)
    for option in ("--build", "--detach"):
        up.add_argument(option, action="store_true")
    up.add_argument("--scale")
    execute = actions.add_parser("exec", allow_abbrev=False)
    execute.add_argument("-T", action="store_true")
    execute.add_argument("service")
    execute.add_argument("command", nargs=argparse.REMAINDER)
    actions.add_parser("logs", allow_abbrev=False).add_argument("service")
    actions.add_parser("down", allow_abbrev=False).add_argument("--volumes", action="store_true")
    options = parser.parse_args(words)
    project = Project(Podman(options.directory), ROOT / options.file, os.environ)
    try:
        sys.stdout.write(_run(project, options))
    except (CommandFailed, TimeoutError) as error:
        print(f"docker compose: {error}", file=sys.stderr)
        return 1
    return 0


def _run(project: Project, options: argparse.Namespace) -> str:
    if options.action == "exec":
        return project.inside(options.service, *options.command)
    if options.action == "logs":
        return project.logs(options.service)
    if options.action == "down":
        project.down()
    elif options.scale:
        service, _, count = options.scale.partition("=")
        project.scale(service, int(count))
    else:
        project.up()
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
