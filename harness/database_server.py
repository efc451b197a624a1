"""Private database server for tests: MariaDB, or the one that `TIDINGS_TEST_SERVER` names."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from harness.mariadb import MariaDB
from harness.mysql import MySQL, MySQL9
from harness.packages import PackageMissing

VARIABLE = "TIDINGS_TEST_SERVER"
KINDS: Mapping[str, type[MariaDB]] = {"mariadb": MariaDB, "mysql8": MySQL, "mysql9": MySQL9}


def kind() -> str:
    """Return the name of the chosen kind, a key of `KINDS`."""
    name = os.environ.get(VARIABLE) or "mariadb"
    if name not in KINDS:
        raise SystemExit(f"{VARIABLE}={name}: must be one of {', '.join(KINDS)}")
    return name


def make(
    *, flush_log: int = 1, buffer_pool_mb: int = 128, options: tuple[str, ...] = (), parent: Path | None = None
) -> MariaDB:
    """Return a server of the chosen kind, not started. Parameters as of `MariaDB`. Raises `PackageMissing`."""
    return KINDS[kind()](flush_log=flush_log, buffer_pool_mb=buffer_pool_mb, options=options, parent=parent)


def main() -> int:
    """Fetch the programs of the chosen kind, start it once and print its version."""
    try:
        server = make()
    except PackageMissing as missing:
        print(missing, file=sys.stderr)
        return 1
    server.start()
    print(f"tests run on {server.version}")
    server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
