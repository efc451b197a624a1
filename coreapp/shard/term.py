"""One shard from the claim of its lease until it is lost or given up: heartbeats beside the work."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable

from coreapp.account.own_device import OwnDevice
from coreapp.account.requests import AccountRequests
from coreapp.settings import Settings
from coreapp.shard import gauges
from coreapp.shard.open_shards import OpenShards
from coreapp.shard.shard import Shard
from tidings.runtime import service
from tidings.storage import outages
from tidings.storage.business import shards
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Database

log = logging.getLogger(__name__)

# Of the silence after which another may take the shard: what an owner that does not reach the database counts on. The
# rest is for leaving, and for clocks that do not run alike.
SURE = 0.9

Open = Callable[[Lease, OwnDevice], Awaitable[Shard]]


class Term:
    """Opens the shard, keeps its lease, and closes it.

    The lease is kept apart from the work: a heartbeat that fails ends the term, and so does a commit that finds
    another epoch, a login at the network that finds a later owner there, and a lease that has run out unrenewed.
    """

    def __init__(
        self,
        lease: Lease,
        asked: float,
        *,
        settings: Settings,
        database: Database,
        requests: AccountRequests,
        open_shards: OpenShards,
        open_shard: Open,
    ) -> None:
        """asked: the loop's time when the lease was asked for."""
        self.lease = lease
        self._asked = asked
        self._settings = settings
        self._database = database
        self._requests = requests
        self._open_shards = open_shards
        self._open_shard = open_shard
        self._leaving = asyncio.Event()
        self._successor = ""

    def give_up(self, successor: str = "") -> None:
        """End the term as soon as what is under way is on disk, and let somebody else have the shard: the successor,
        where there is one, waits for it."""
        self._successor = successor
        self._leaving.set()

    async def run(self, opened: Callable[[], None]) -> None:
        """Serve until it is given up, or until the shard is to be opened again, which stays ours meanwhile.

        opened(): called when the shard answers. Raises `LeaseLost`, and what else ended the term.
        """
        ended = asyncio.Event()
        heartbeat = asyncio.create_task(self._keep(ended), name="heartbeat")
        work = asyncio.create_task(self._work(ended, opened), name="term")
        leaving = asyncio.create_task(self._leaving.wait())
        reopening = asyncio.create_task(self._reopen(), name="reopen")
        try:
            await asyncio.wait([heartbeat, work, leaving, reopening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            reopening.cancel()
            self._disown()
            ended.set()
            results = await asyncio.gather(work, heartbeat, return_exceptions=True)
            # The term may have been opening its shard until now.
            self._disown()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if self._leaving.is_set():
            await self._release()

    def _disown(self) -> None:
        self._open_shards.remove(self.lease)
        if self.lease.is_first:
            self._requests.term_ended(self.lease)

    async def _reopen(self) -> None:
        """When the account's keys are to be others; what other shards know of them ends with their leases."""
        if self.lease.is_first:
            await self._requests.reopen.wait()
        else:
            await asyncio.Event().wait()

    async def _work(self, ended: asyncio.Event, opened: Callable[[], None]) -> None:
        if self.lease.is_first:
            device = await self._requests.device(self.lease, ended)
        else:
            device = await self._requests.registered_device(ended)
        if device is None:
            return
        shard = await self._open_shard(self.lease, device)
        if self.lease.is_first:
            shard.link.on_refused(self._requests.login_refused)
        self._open_shards.put(shard)
        gauges.publish(shard)
        opened()
        if self.lease.is_first:
            self._requests.term_opened()
        try:
            await shard.run(ended, self._disown)
        finally:
            gauges.withdraw(shard)

    async def _keep(self, ended: asyncio.Event) -> None:
        """Renew until `ended`. Raises `LeaseLost`, also when no heartbeat has succeeded for too long.

        We may be the only one that does not reach the database, so that another takes the shard without our knowing. A
        heartbeat that hangs is not waited for.
        """
        loop, seconds = asyncio.get_running_loop(), self._settings.lease_seconds * SURE
        until = self._asked + seconds
        while not await service.wait_for(ended, min(self._settings.heartbeat_seconds, until - loop.time())):
            renewing = asyncio.create_task(self._renew(), name="renew")
            ending = asyncio.create_task(ended.wait())
            left = max(0.0, until - loop.time())
            await asyncio.wait([renewing, ending], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            ending.cancel()
            renewing.cancel()
            if renewing.done():
                try:
                    until = renewing.result() + seconds
                except Exception as error:
                    if not outages.is_outage(error):
                        raise
                    log.warning("lease.not_renewed", extra={"shard": self.lease.shard, "error": repr(error)})
            if loop.time() >= until:
                raise LeaseLost(f"shard {self.lease.shard}: the lease was not renewed for {seconds:.1f} s")

    async def _renew(self) -> float:
        """The loop's time before the database was asked."""
        asked = asyncio.get_running_loop().time()
        await self._database.commit(lambda connection: shards.renew(connection, self.lease))
        return asked

    async def _release(self) -> None:
        fields = {"shard": self.lease.shard, "epoch": self.lease.epoch, "successor": self._successor}
        try:
            release = functools.partial(shards.release, lease=self.lease, successor=self._successor)
            await self._database.commit(release)
        except Exception as error:
            log.warning("lease.not_released", extra={**fields, "error": repr(error)})
        else:
            log.info("lease.released", extra=fields)
