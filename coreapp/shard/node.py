"""One Coreapp process: stand by for the shard, own it while the lease holds, stand by again."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable

from coreapp.account.registrar import Registrar
from coreapp.account.requests import AccountRequests
from coreapp.settings import Settings
from coreapp.shard.health import Databases
from coreapp.shard.shard import Shard, open_shard
from tidings.client.http import NetworkApi
from tidings.e2ee.master_keys import MasterKeys
from tidings.runtime import service
from tidings.runtime.clock import Clock
from tidings.storage import outages
from tidings.storage.business import shards
from tidings.storage.business.shards import Lease, LeaseLost
from tidings.storage.database import Database

log = logging.getLogger(__name__)

SHARD = 0  # the one shard there is as yet
RETRY_SECONDS = 0.5
# Of the silence after which another may take the shard: what an owner that does not reach the database counts on. The
# rest is for leaving, and for clocks that do not run alike.
SURE = 0.9


class Node:
    """Claims the shard, opens it, keeps its lease, and closes it when the lease is lost or the process stops.

    The lease is kept apart from the work: a heartbeat that fails ends the term, and so does a commit that finds
    another epoch, a login at the network that finds a later owner there, and a lease that has run out unrenewed.
    """

    name = "node"

    def __init__(
        self,
        settings: Settings,
        database: Database,
        network: NetworkApi,
        *,
        clock: Clock,
        address: Callable[[], str],
    ) -> None:
        """address(): where Webapps reach this process, `host:port`."""
        self._settings = settings
        self._database = database
        self._network = network
        self._clock = clock
        self._address = address
        self.shard: Shard | None = None
        self.owned = asyncio.Event()
        secrets = settings.secrets
        masters = MasterKeys(secrets.master_key.keys, secrets.master_key.read)
        self._registrar = Registrar(network, secrets.registration_key, masters)
        self.databases = Databases(database, network)
        self.requests = AccountRequests(
            database, self._registrar, settings.account, auto_register=settings.auto_register
        )

    async def run(self, stop: asyncio.Event) -> None:
        await self._database.persist(
            lambda connection: shards.create_shards(connection, self._settings.shards), patience=math.inf
        )
        while not stop.is_set():
            # From before the database is asked: what it grants is never longer than what we count on.
            asked = asyncio.get_running_loop().time()
            try:
                lease = await self._claim()
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("lease.unreachable", extra={"error": repr(error)})
                self.requests.abandon()
                await service.wait_for(stop, RETRY_SECONDS)
                continue
            if lease is None:
                self.requests.abandon()
                await service.wait_for(stop, self._settings.heartbeat_seconds)
                continue
            log.info("lease.claimed", extra={"shard": lease.shard, "epoch": lease.epoch, "node": self._settings.node})
            try:
                await self._serve(lease, asked, stop)
            except LeaseLost as lost:
                log.warning("lease.lost", extra={"shard": lease.shard, "epoch": lease.epoch, "detail": str(lost)})
                await service.wait_for(stop, RETRY_SECONDS)
                continue
            except Exception as error:
                if not outages.is_outage(error):
                    raise
                log.warning("shard.left", extra={"shard": lease.shard, "error": repr(error)})
                await service.wait_for(stop, RETRY_SECONDS)
                continue
            # A shard that is to be opened again stays ours meanwhile.
            if stop.is_set() or not self.requests.reopen.is_set():
                await self._release(lease)
        self.requests.abandon()

    async def _claim(self) -> Lease | None:
        settings = self._settings
        claim = functools.partial(
            shards.claim, shard=SHARD, owner=settings.node, address=self._address(), silence=settings.lease_seconds
        )
        lease = await self._database.commit(claim)
        if lease is not None:
            # A connection from before may lead to a server that another took over from, and that knows less.
            self._database.doubt_connections()
        return lease

    async def _serve(self, lease: Lease, asked: float, stop: asyncio.Event) -> None:
        """One term. Ends at `stop`, or when the shard is to be opened again; raises `LeaseLost`.

        asked: the loop's time when the lease was asked for.
        """
        ended = asyncio.Event()
        heartbeat = asyncio.create_task(self._keep(lease, asked, ended), name="heartbeat")
        term = asyncio.create_task(self._work(lease, ended), name="term")
        stopping = asyncio.create_task(stop.wait())
        reopening = asyncio.create_task(self._reopen(), name="reopen")
        try:
            await asyncio.wait([heartbeat, term, stopping, reopening], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            reopening.cancel()
            self._disown()
            ended.set()
            results = await asyncio.gather(term, heartbeat, return_exceptions=True)
            # The term may have been opening its shard until now.
            self._disown()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _disown(self) -> None:
        self.shard = None
        self.owned.clear()
        self.requests.term_ended()

    async def _reopen(self) -> None:
        await self.requests.reopen.wait()

    async def _work(self, lease: Lease, ended: asyncio.Event) -> None:
        device = await self.requests.device(lease, ended)
        if device is None:
            return
        self.shard = shard = await open_shard(
            self._settings, self._database, lease, device=device, network=self._network, clock=self._clock
        )
        self.owned.set()
        self.requests.term_opened()
        await shard.run(ended)

    async def _keep(self, lease: Lease, asked: float, ended: asyncio.Event) -> None:
        """Renew until `ended`. Raises `LeaseLost`, also when no heartbeat has succeeded for too long.

        We may be the only one that does not reach the database, so that another takes the shard without our knowing. A
        heartbeat that hangs is not waited for.
        """
        loop, seconds = asyncio.get_running_loop(), self._settings.lease_seconds * SURE
        until = asked + seconds
        while not await service.wait_for(ended, min(self._settings.heartbeat_seconds, until - loop.time())):
            renewing = asyncio.create_task(self._renew(lease), name="renew")
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
                    log.warning("lease.not_renewed", extra={"shard": lease.shard, "error": repr(error)})
            if loop.time() >= until:
                raise LeaseLost(f"shard {lease.shard}: the lease was not renewed for {seconds:.1f} s")

    async def _renew(self, lease: Lease) -> float:
        """The loop's time before the database was asked."""
        asked = asyncio.get_running_loop().time()
        await self._database.commit(lambda connection: shards.renew(connection, lease))
        return asked

    async def _release(self, lease: Lease) -> None:
        try:
            await self._database.commit(lambda connection: shards.release(connection, lease))
        except Exception as error:
            log.warning("lease.not_released", extra={"shard": lease.shard, "error": repr(error)})
