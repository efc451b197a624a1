"""Databases with current tables. On SQLite they are copies of one: all migrations take a tenth of a second."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.database import Database

_migrated: dict[str, bytes] = {}


async def migrate(url: str, family: str) -> None:
    """Create a database on any server, and upgrade its tables."""
    database = Database(DatabaseSettings(url), family)
    try:
        await schema.create_database(database.settings)
        await schema.upgrade(database)
    finally:
        await database.close()


async def create_sqlite(path: Path, family: str) -> None:
    """Create a database with empty tables at this path. One that exists stays as it is."""
    if family not in _migrated:
        with tempfile.TemporaryDirectory() as folder:
            first = Path(folder) / "first.db"
            await migrate(f"sqlite+aiosqlite:///{first}", family)
            _migrated[family] = first.read_bytes()
    _write_new(path, _migrated[family])


def _write_new(path: Path, content: bytes) -> None:
    with contextlib.suppress(FileExistsError), path.open("xb") as file:
        file.write(content)
