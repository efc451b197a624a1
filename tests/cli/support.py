"""Run `tidings` commands, each in a process of its own."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Mapping

from tests.cli.forked_commands import ForkedCommands


@functools.cache
def commands() -> ForkedCommands:
    """Return the server of the commands, which is started at the first call."""
    return ForkedCommands()


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process that has its modules already, with these variables of ours alone."""
    return commands().run(words, environment(variables))


def run_from_scratch(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does, with a new interpreter, which takes most of a second."""
    command = [sys.executable, "-m", "cli.main", *words]
    return subprocess.run(command, env=environment(variables), capture_output=True, text=True, timeout=60)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment variables with these instead of all of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDINGS_", "WA"))}
    return {**kept, **variables}


def assert_one_line(done: subprocess.CompletedProcess[str], status: int, pattern: str) -> None:
    """Assert that a command ended with this status, and that its last line of errors begins like this."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    last = done.stderr.rstrip("\n").splitlines()[-1]
    assert re.match(pattern, last), done.stderr
