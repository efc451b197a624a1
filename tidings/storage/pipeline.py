"""Statements whose results nobody waits for, sent to a server together: one round trip for nearly all of a transaction.

A transaction of one message has five statements before its commit. One by one each costs a round trip: on the client
some 100 µs of CPU besides its own, on the server a thread that sleeps and wakes. MySQL's protocol lets a client send
the next command before it has read the answer to the last one; the server executes them in their order.
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

# Given the connection and how many rows a statement has changed; raises what is wrong with that.
Check: TypeAlias = Callable[[AsyncConnection, int], Awaitable[None]]


class Pipeline(str):
    """Several statements with their placeholders, for whoever looks at statements; `queries` is what is sent."""

    __slots__ = ("queries",)
    queries: Sequence[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class _Deferred:
    text: str
    queries: Sequence[bytes]
    check: Check | None


class PipelinedConnection(AsyncConnection):
    """A connection to a server. What is deferred is sent before anything else is executed, and by `flush`.

    defers: set by `gathered`; else nothing waits.
    """

    def __init__(self, engine: AsyncEngine, sync_connection: sa.Connection | None = None) -> None:
        super().__init__(engine, sync_connection)
        self.defers = False
        self._deferred: list[_Deferred] = []

    @property
    def driver(self) -> Any:
        """The driver's own connection."""
        assert self.sync_connection is not None
        return self.sync_connection.connection.driver_connection

    async def defer(self, text: str, queries: Sequence[bytes], check: Check | None = None) -> None:
        """Have these queries executed, in their order. text: with placeholders, as it may be logged."""
        self._deferred.append(_Deferred(text, queries, check))
        if not self.defers:
            await self.flush()

    async def flush(self) -> None:
        """Send what is deferred, and wait for all of it. Raises the first error, and those of the checks.

        Statements behind one that failed were executed nevertheless: the transaction has to be rolled back.
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
    """Statements that can wait do so until the end of the block. Raises as `flush`."""
    if not isinstance(connection, PipelinedConnection):
        yield
        return
    connection.defers = True
    yield
    await connection.flush()


class PipelinedEngine(AsyncEngine):
    """An engine of such connections."""

    _connection_cls = PipelinedConnection
