"""Pipelining of statements whose results are not needed: one round trip for nearly all of a transaction.

A transaction of one message has five statements before its commit. Sent one by one, each costs a round trip: about
100 µs of extra CPU on the client, and on the server a thread that sleeps and wakes. MySQL's protocol lets a client send
the next command before it has read the result of the last one. The server executes the commands in their order.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import CoreExecuteOptionsParameter
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

# Receives the connection and the number of rows changed by a statement; raises an error if that number is wrong.
Check: TypeAlias = Callable[[AsyncConnection, int], Awaitable[None]]


class Pipeline(str):
    """Text of several statements with their placeholders, for logs and event listeners; `queries` is what is sent."""

    __slots__ = ("queries",)
    queries: Sequence[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class _Deferred:
    text: str
    queries: Sequence[bytes]
    check: Check | None


class PipelinedConnection(AsyncConnection):
    """Connection to a server. Deferred statements are sent before any other statement, and by `flush`."""

    def __init__(self, engine: AsyncEngine, sync_connection: sa.Connection | None = None) -> None:
        super().__init__(engine, sync_connection)
        # Whether deferred statements are collected until `flush` instead of sent at once; set by `gathered`.
        self.defers = False
        self._deferred: list[_Deferred] = []

    @property
    def driver(self) -> Any:
        """Return the driver's own connection."""
        assert self.sync_connection is not None
        return self.sync_connection.connection.driver_connection

    async def defer(self, text: str, queries: Sequence[bytes], check: Check | None = None) -> None:
        """Defer queries, which are executed in their order. `text` has placeholders instead of values, for logs."""
        self._deferred.append(_Deferred(text, queries, check))
        if not self.defers:
            await self.flush()

    async def flush(self) -> None:
        """Send all deferred statements and wait for their results. Raises the first error, or that of a check.

        The server has executed the statements after a failed one, so the transaction must be rolled back.
        """
        while self._deferred:
            deferred, self._deferred = self._deferred, []
            pipeline = Pipeline(";\n".join(one.text for one in deferred))
            pipeline.queries = [query for one in deferred for query in one.queries]
            await super().exec_driver_sql(pipeline, execution_options={"no_parameters": True})
            changed = iter(self.driver.changed)
            for one in deferred:
                rows = sum(next(changed) for _ in one.queries)
                if one.check is not None:
                    await one.check(self, rows)

    async def execute(self, *arguments: Any, **named: Any) -> Any:
        await self.flush()
        return await super().execute(*arguments, **named)

    async def exec_driver_sql(
        self, statement: str, parameters: Any = None, execution_options: CoreExecuteOptionsParameter | None = None
    ) -> sa.CursorResult[Any]:
        await self.flush()
        return await super().exec_driver_sql(statement, parameters, execution_options)

    async def run_sync(
        self, fn: Callable[Concatenate[sa.Connection, Arguments], Value], *arg: Arguments.args, **kw: Arguments.kwargs
    ) -> Value:
        await self.flush()
        return await super().run_sync(fn, *arg, **kw)


@contextlib.asynccontextmanager
async def gathered(connection: AsyncConnection) -> AsyncIterator[None]:
    """Defer statements whose results are not needed until the end of the block. Raises as `flush` does."""
    if not isinstance(connection, PipelinedConnection):
        yield
        return
    connection.defers = True
    yield
    await connection.flush()


class PipelinedEngine(AsyncEngine):
    """Engine whose connections are `PipelinedConnection`."""

    _connection_cls = PipelinedConnection
