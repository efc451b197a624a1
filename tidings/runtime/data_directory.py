"""Whose data directory it is: a file in it has the business's number."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tidings.runtime.env import SettingsError

NAME = "business_number"


def require_number(directory: Path, number: str) -> None:
    """Raises `SettingsError` for the directory of another number; a new one is this number's from now on.

    One that cannot be written is nobody's: then all that is kept is in the database.
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
    # Another process may just be writing it.
    if found and found != number:
        raise SettingsError(
            f"TIDINGS_BUSINESS_NUMBER is {number}, but {directory} is the data directory of {found}: set the number "
            f"back, give this installation a directory of its own (TIDINGS_DATA_DIR), or remove {path}"
        )
