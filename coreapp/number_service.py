"""Services of a number, which run with its first shard and act on changes that Webapps and commands announce."""

from __future__ import annotations

import abc
import asyncio
import logging

from coreapp.context import ShardContext
from tidings.aio import service
from tidings.aio.service import Wakeup
from tidings.storage.business.shards import LeaseLost


class NumberService(abc.ABC):
    """Service that runs when it is woken and when its next run is due. A run that fails is repeated."""

    name: str
    # Log event of a run that failed.
    failure: str
    # Seconds until a run that failed is repeated.
    retry_seconds: float

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._wakeup = Wakeup()

    def wake(self) -> None:
        """Called when that on which the service acts may have changed."""
        self._wakeup.wake()

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises `LeaseLost`."""
        await service.repeat(stop, self._wakeup, self.run_once, failed=self._failed)

    @abc.abstractmethod
    async def run_once(self) -> float | None:
        """Run once. Returns the seconds until the next run; None to wait until it is woken. Raises `LeaseLost`."""

    def _failed(self, error: Exception) -> float:
        if isinstance(error, LeaseLost):
            raise error
        logging.getLogger(type(self).__module__).warning(self.failure, extra={"error": repr(error)[:200]})
        return self.retry_seconds
