"""Check that a data directory belongs to this business number, which a file in it records."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tidings.config.env import SettingsError

NAME = "business_number"


def require_number(directory: Path, number: str) -> None:
    """Record the business number in a new data directory. Raises `SettingsError` when it records another number.

    A directory that cannot be written or read is accepted: everything to be kept is then in the database.
    """
    path = directory / NAME
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(f"{number}\n")
    try:
        found = path.read_text().strip()
    except OSError:
        return
    # Empty while another process is writing it.
    if found and found != number:
        raise SettingsError(
            f"TIDINGS_BUSINESS_NUMBER is {number}, but {directory} is the data directory of {found}: set the number "
            f"back, give this installation its own directory (TIDINGS_DATA_DIR), or remove {path}"
        )
