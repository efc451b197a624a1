"""Fixtures for migrations: databases without tables."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from harness.mariadb import MariaDB
from tidings.installation.settings import DatabaseSettings
from tidings.storage import schema
from tidings.storage.database import Database

MakeDatabase = Callable[[str], Awaitable[Database]]

_numbers = itertools.count(1)


@pytest.fixture
async def make(database_engine: str, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MakeDatabase]:
    """Function that creates databases: `await make("network")` returns one without any table."""
    opened: list[Database] = []
    names: list[str] = []
    server: MariaDB | None = request.getfixturevalue("mariadb") if database_engine == "mariadb" else None

    async def new(family: str) -> Database:
        name = f"migrated_{next(_numbers)}"
        names.append(name)
        url = server.url(name) if server else f"sqlite+aiosqlite:///{tmp_path}/{name}.db"
        await schema.create_database(DatabaseSettings(url))
        database = Database(DatabaseSettings(url), family)
        opened.append(database)
        return database

    yield new
    for database in opened:
        await database.close()
    if server:
        with server.connect() as connection, connection.cursor() as cursor:
            for name in names:
                cursor.execute(f"DROP DATABASE {name}")
