"""A cheaper SQLite driver: one trip to its thread for each statement instead of three or four, and sure to end.

A trip costs about 100 µs of CPU, more than most statements. The cursors here make, run, read out and close the real
cursor in one trip; they hold whole results, and know only what SQLAlchemy asks of a cursor that is not streaming.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any


class Trips:
    """Counts of statements that went to the driver's thread, and of those it has done, each counted by one thread."""

    def __init__(self) -> None:
        self.begun = 0
        self.done = 0


class Cursor:
    """Stand-in for `aiosqlite.Cursor`."""

    arraysize = 1

    def __init__(self, driver: Any, trips: Trips) -> None:
        self._driver = driver
        self._trips = trips
        self._rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None

    async def __aenter__(self) -> Cursor:
        return self

    async def execute(self, operation: str, parameters: Any = ()) -> Cursor:
        self._trips.begun += 1
        await self._driver._execute(self._run, self._driver._conn.execute, operation, parameters)
        return self

    async def executemany(self, operation: str, parameters: Sequence[Any]) -> Cursor:
        self._trips.begun += 1
        await self._driver._execute(self._run, self._driver._conn.executemany, operation, parameters)
        return self

    async def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        self._rows = []

    def _run(self, method: Callable[[str, Any], Any], operation: str, parameters: Any) -> None:
        """On the driver's thread."""
        try:
            cursor = method(operation, parameters)
            self.description = cursor.description
            self._rows = cursor.fetchall() if cursor.description else []
            self.rowcount = cursor.rowcount
            self.lastrowid = cursor.lastrowid
            cursor.close()
        finally:
            self._trips.done += 1


def install(driver: Any) -> None:
    """Give an `aiosqlite.Connection` these cursors, no trip for a rollback with nothing to roll back, and one end.

    Whoever is cancelled twice while its connection is closed ends it a second time; the driver would wait for ever for
    its thread, which has gone at the first.
    """
    rollback, stop = driver.rollback, functools.cache(driver.stop)
    trips = Trips()

    async def rollback_if_begun() -> None:
        # A cancelled caller leaves its statement, BEGIN perhaps, on its way: the rollback then queues behind it.
        if trips.begun != trips.done or driver.in_transaction:
            await rollback()

    driver.cursor = lambda: Cursor(driver, trips)
    driver.rollback = rollback_if_begun
    driver.stop = stop
