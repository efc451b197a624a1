"""One shard from the claim of its lease until it is lost or given up: heartbeats in parallel with the work."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Awaitable, Callable

from coreapp.account.own_device import OwnDevice
from coreapp.account.requests import AccountRequests
from coreapp.settings import Settings
from coreapp.shard import gauges
from coreapp.shard.open_shards import OpenShards
from coreapp.shard.shard import Shard
from tidings.aio import service
from tidings.storage import outages
from tidings.storage.business import shards
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Database

log = logging.getLogger(__name__)

# Fraction of the silence after which another process may take the shard. An owner that cannot reach the database relies
# on its lease for this time; the rest is a margin for closing the shard and for clock drift.
LEASE_SHARE = 0.9

Open = Callable[[Lease, OwnDevice], Awaitable[Shard]]


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Term:
    """Opens the shard, renews its lease, and closes it.

    The lease is renewed independently of the work. The term ends when a heartbeat fails, a commit finds another epoch,
    the network reports a later owner at a login, or the lease expires.
    """

    lease: Lease
    requested_at: float  # loop time before the lease was requested
    _: dataclasses.KW_ONLY
    settings: Settings
    database: Database
    requests: AccountRequests
    open_shards: OpenShards
    open_shard: Open
    _leaving: asyncio.Event = dataclasses.field(default_factory=asyncio.Event, init=False)
    _successor: str = dataclasses.field(default="", init=False)

    def give_up(self, successor: str = "") -> None:
        """End the term as soon as the work in flight is on disk, and release the shard.

        successor: process that waits for the shard; empty for any
        """
        self._successor = successor
        self._leaving.set()

    @property
    def is_given_up(self) -> bool:
        """True once the shard is being given up, or was given up."""
        return self._leaving.is_set()

    @property
    def successor(self) -> str:
        """Name of the process for which the shard was given up; empty for any."""
        return self._successor

    async def run(self, opened: Callable[[], None]) -> None:
        """Serve until the shard is given up, or must be reopened, in which case the lease is kept. Raises `LeaseLost`,
        and other errors that ended the term.

        opened: called when the shard is ready to handle requests
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
            # `_work` may have opened its shard after the first call.
            self._disown()
        for result in results:
            if isinstance(result, BaseException):
                raise result
        if self._leaving.is_set():
            await self._release()

    def _disown(self) -> None:
        self.open_shards.remove(self.lease)
        if self.lease.is_first:
            self.requests.term_ended(self.lease)

    async def _reopen(self) -> None:
        """Wait until the account's keys are to change; only in the term of the first shard. Terms of other shards end
        with their leases.
        """
        if self.lease.is_first:
            await self.requests.reopen.wait()
        else:
            await asyncio.Event().wait()

    async def _work(self, ended: asyncio.Event, opened: Callable[[], None]) -> None:
        if self.lease.is_first:
            device = await self.requests.device(self.lease, ended)
        else:
            device = await self.requests.registered_device(ended)
        if device is None:
            return
        shard = await self.open_shard(self.lease, device)
        if self.lease.is_first:
            shard.link.on_refused(self.requests.login_refused)
        self.open_shards.put(shard)
        gauges.publish(shard)
        opened()
        if self.lease.is_first:
            self.requests.term_opened()
        try:
            await shard.run(ended, self._disown)
        finally:
            gauges.withdraw(shard)

    async def _keep(self, ended: asyncio.Event) -> None:
        """Renew the lease until `ended`. Raises `LeaseLost`, also if no heartbeat has succeeded for too long.

        This process may be the only one that cannot reach the database, so another one may take the shard unnoticed. A
        hanging heartbeat is therefore not waited for.
        """
        loop, seconds = asyncio.get_running_loop(), self.settings.lease_seconds * LEASE_SHARE
        until = self.requested_at + seconds
        while not await service.wait_for(ended, min(self.settings.heartbeat_seconds, until - loop.time())):
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
        """Renew the lease. Returns the loop time before the request."""
        requested_at = asyncio.get_running_loop().time()
        await self.database.commit(lambda connection: shards.renew(connection, self.lease))
        return requested_at

    async def _release(self) -> None:
        fields = {"shard": self.lease.shard, "epoch": self.lease.epoch, "successor": self._successor}
        try:
            release = functools.partial(shards.release, lease=self.lease, successor=self._successor)
            await self.database.commit(release)
        except Exception as error:
            log.warning("lease.not_released", extra={**fields, "error": repr(error)})
        else:
            log.info("lease.released", extra=fields)
