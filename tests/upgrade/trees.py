"""Other revisions of the program: earlier ones from the repository, and a made-up next release."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path

from harness.processes import Revision
from tidings.storage import revisions

ROOT = Path(__file__).parents[2]
SUPPORTED = Path(__file__).with_name("supported.toml")
# Folders of a program that is run from a tree.
PROGRAM = ("tidings", "webapp", "coreapp", "network", "handset", "cli", "migrations")
LOCK = "requirements.lock"


class Unavailable(Exception):
    """An earlier revision cannot be run here. `str()` gives the reason, and what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Supported:
    """One entry of `supported.toml`."""

    commit: str
    rolls: bool
    statuses: tuple[int, ...]


def read_supported() -> list[Supported]:
    """Return the earlier revisions, the oldest first."""
    entries = tomllib.loads(SUPPORTED.read_text(encoding="utf-8"))["revision"]
    return [Supported(entry["commit"], entry["rolls"], tuple(entry["statuses"])) for entry in entries]


def check_out(commit: str, directory: Path) -> Revision:
    """Write the files of an earlier revision to a new directory. Raises `Unavailable`.

    It gets a separate environment if its packages are not ours.
    """
    tree = directory / commit[:7]
    try:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise Unavailable(f"revision {commit}: there is no `git` here to check it out; install git") from None
    except subprocess.CalledProcessError as failed:
        reason = failed.stderr.decode(errors="replace").strip()
        raise Unavailable(
            f"revision {commit} is not in the history of {ROOT}: run this in a full clone, not in a copy of the files "
            f"or a shallow clone (`git fetch --unshallow`). git says: {reason}"
        ) from None
    tree.mkdir()
    subprocess.run(["tar", "--extract", "--no-same-owner", "--directory", tree], input=archive, check=True)
    if _pins(tree / LOCK) <= _pins(ROOT / LOCK):
        return Revision(tree)
    environment = tree / "build" / "environment"
    subprocess.run([tree / ".ci" / "make-venv", environment], cwd=tree, check=True)
    subprocess.run([tree / ".ci" / "install", environment, LOCK], cwd=tree, check=True)
    return Revision(tree, str(environment / "bin" / "python"))


def _pins(lock: Path) -> set[str]:
    """Return the packages with their versions."""
    return {line.split(" ")[0] for line in lock.read_text(encoding="utf-8").splitlines() if "==" in line.split(" ")[0]}


def make_next(directory: Path, name: str, migrations: Sequence[tuple[int, str]]) -> Revision:
    """Return a copy of this program with more migrations of the business tables.

    migrations: for each, the oldest program that works on the tables after it, as the number of migrations that it has
    beyond this program's, and its statement.
    """
    tree = directory / name
    for folder in PROGRAM:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    head = int(revisions.program("business").revision)
    for number, (more, statement) in enumerate(migrations, start=head + 1):
        lines = ['"""A migration of the tests."""', "import sqlalchemy as sa", "from alembic import op"]
        lines += [f'revision = "{number:04}"', f'down_revision = "{number - 1:04}"']
        lines += [f'COMPATIBLE_FROM = "{head + more:04}"', "def upgrade() -> None:", f"    {statement}"]
        (tree / "migrations" / "business" / f"{number:04}_next.py").write_text("\n".join(lines) + "\n")
    return Revision(tree)
