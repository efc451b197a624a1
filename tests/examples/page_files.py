"""Files and commands that pages show, for tests that run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
OFFLINE = PAGE.with_name("offline.md")
EXAMPLES = PAGE.parent / "examples"
_FILE = re.compile(r"<!-- (\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)


def shown(page: Path = PAGE) -> Mapping[str, str]:
    """Return the files and commands of a page by name."""
    return dict(_FILE.findall(page.read_text(encoding="utf-8")))


def run(command: Sequence[str], directory: Path, **variables: str) -> str:
    """Run a command in a directory, with `tidings` in the `PATH`, and return its output. It has to succeed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TIDINGS_", "WA_", "PYTEST_"))}
    own["PATH"] = f"{Path(sys.executable).parent}:{own['PATH']}"
    done = subprocess.run(
        command, cwd=directory, env={**own, **variables}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
