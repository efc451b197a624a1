"""Runs commands of `tidings` in the process of the tests. A process for each would take a second of CPU time."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
from collections.abc import Iterator
from unittest import mock

from cli import main


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command with these variables, and no other ones of Tidings; returns its status and output."""
    out, err = io.StringIO(), io.StringIO()
    with _environment(variables), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main.main(words)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
    return subprocess.CompletedProcess(words, status, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    ours = [name for name in os.environ if name.startswith(("TIDINGS_", "WA"))]
    mask = os.umask(0o077)
    with mock.patch.dict(os.environ, variables):
        for name in ours:
            if name not in variables:
                del os.environ[name]
        try:
            yield
        finally:
            os.umask(mask)
