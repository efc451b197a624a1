"""One Coreapp process: stand by for the shard, own it while the lease holds, stand by again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from coreapp.account import Registrar
from coreapp.desk import AccountDesk
from coreapp.settings import Settings
from coreapp.shard import Shard
from tidings.runtime import service
from tidings.runtime.clock import Clock
from tidings.storage import shards
from tidings.storage.database import Database, is_transient
from tidings.storage.shards import Lease, LeaseLost

log = logging.getLogger(__name__)

SHARD = 0  # the one shard there is as yet
RETRY_SECONDS = 0.5


class Node:
    """Claims the shard, opens it, keeps its lease, and closes it when the lease is lost or the process stops.

    The lease is kept apart from the work: a heartbeat that fails ends the term, and so does a commit that finds
    another epoch.
    """

    name = "node"

    def __init__(self, settings: Settings, database: Database, clock: Clock, address: Callable[[], str]) -> None:
        """address(): where Webapps reach this process, `host:port`."""
        self._settings = settings
        self._database = database
        self._clock = clock
        self._address = address
        self.shard: Shard | None = None
        self.owned = asyncio.Event()
        secrets = settings.secrets
        self._registrar = Registrar(settings.network_http, secrets.registration_key, secrets.master_key)
        self.desk = AccountDesk(database, self._registrar, settings.account, auto_register=settings.auto_register)

    async def run(self, stop: asyncio.Event) -> None:
        await self._database.persist(lambda connection: shards.create_shards(connection, self._settings.shards))
        while not stop.is_set():
            lease = await self._claim()
            if lease is None:
                self.desk.abandon()
                await service.wait_for(stop, self._settings.heartbeat_seconds)
                continue
            log.info("lease.claimed", extra={"shard": lease.shard, "epoch": lease.epoch, "node": self._settings.node})
            try:
                await self._serve(lease, stop)
            except LeaseLost as lost:
                log.warning("lease.lost", extra={"shard": lease.shard, "epoch": lease.epoch, "detail": str(lost)})
                continue
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("shard.left", extra={"shard": lease.shard, "error": repr(error)})
                await service.wait_for(stop, RETRY_SECONDS)
                continue
            # A shard that is to be opened anew stays ours meanwhile.
            if stop.is_set() or not self.desk.reopen.is_set():
                await self._release(lease)
        self.desk.abandon()

    async def _claim(self) -> Lease | None:
        settings = self._settings
        try:
            async with self._database.transaction() as connection:
                return await shards.claim(
                    connection, SHARD, owner=settings.node, address=self._address(), silence=settings.lease_seconds
                )
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("lease.unreachable", extra={"error": repr(error)})
            return None

    async def _serve(self, lease: Lease, stop: asyncio.Event) -> None:
        """One term. Ends at `stop`, or when the shard is to be opened anew; raises `LeaseLost`."""
        ended = asyncio.Event()
        heartbeat = asyncio.create_task(self._keep(lease, ended), name="heartbeat")
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
        self.desk.term_ended()

    async def _reopen(self) -> None:
        await self.desk.reopen.wait()

    async def _work(self, lease: Lease, ended: asyncio.Event) -> None:
        device = await self.desk.device(lease, ended)
        if device is None:
            return
        shard = Shard(self._settings, self._database, lease, device, self._registrar, self._clock)
        await shard.open()
        self.shard = shard
        self.owned.set()
        self.desk.term_opened()
        await shard.run(ended)

    async def _keep(self, lease: Lease, ended: asyncio.Event) -> None:
        """Renew until `ended`. Raises `LeaseLost`.

        While the database is away nobody else can take the lease either, so that alone does not end the term.
        """
        while not await service.wait_for(ended, self._settings.heartbeat_seconds):
            try:
                async with self._database.transaction() as connection:
                    await shards.renew(connection, lease)
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("lease.not_renewed", extra={"shard": lease.shard, "error": repr(error)})

    async def _release(self, lease: Lease) -> None:
        try:
            async with self._database.transaction() as connection:
                await shards.release(connection, lease)
        except Exception as error:
            log.warning("lease.not_released", extra={"shard": lease.shard, "error": repr(error)})
