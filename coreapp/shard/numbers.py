"""Parts that this process has for each number of the installation, shared by the number's shards."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence

from coreapp.account.registrar import Registrar
from coreapp.account.requests import AccountRequests
from coreapp.config import ConfigSource
from coreapp.graph_api.number import NumberConnections
from coreapp.settings import Settings
from coreapp.shard.shard import ProcessParts
from coreapp.used_keys import UsedKeys
from coreapp.webhook_secrets import WebhookSecrets
from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.aio.service import Wakeup
from tidings.aio.slots import Slots
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.e2ee.master_keys import MasterKeys
from tidings.storage.business import shard_blocks
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.database import Database

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NumberParts:
    """Registration, settings and filter of idempotency keys of one number."""

    number: str
    block: int  # shard block
    process: ProcessParts  # those of the process, with this number's settings, slots and filter
    requests: AccountRequests

    @property
    def config(self) -> ConfigSource:
        return self.process.config

    @property
    def used_keys(self) -> UsedKeys:
        return self.process.used_keys

    @property
    def first_shard(self) -> int:
        return shard_blocks.first_shard(self.block)


class CoreappNumbers:
    """Numbers that this process may serve: the first one always, further ones while the installation has them.

    As a service it runs the services of each number, which start when the number is found and stop when it is removed.
    """

    name = "numbers"

    def __init__(self, first: str, make: Callable[[str, int], NumberParts]) -> None:
        """Create the parts of the first number.

        make: creates the parts of a number with this shard block
        """
        self._make = make
        self.first = make(first, 0)
        self._by_block = {0: self.first}
        self._by_number = {first: self.first}
        # Events that end the services of a number, and the services.
        self._leaving: dict[int, asyncio.Event] = {}
        self._tasks: dict[asyncio.Task[None], int] = {}
        self._changed = Wakeup()

    def __iter__(self) -> Iterator[NumberParts]:
        """Iterate over the numbers by shard block."""
        return iter([self._by_block[block] for block in sorted(self._by_block)])

    def of_shard(self, shard: int) -> NumberParts | None:
        """Return the number that a shard belongs to; None if the installation does not have it, as far as is known."""
        return self._by_block.get(shard_blocks.block_of(shard))

    def of(self, account: str) -> NumberParts | None:
        """Return a number; None for an unknown one. An empty string stands for the first number."""
        return self._by_number.get(account) if account else self.first

    def follow(self, found: Sequence[BusinessNumber]) -> None:
        """Set the numbers of the installation, as read from the database. The first number always stays."""
        before, wanted = dict(self._by_block), {row.shard_block: row.number for row in found if not row.is_first}
        for block, parts in list(self._by_block.items()):
            if block and wanted.get(block) != parts.number:
                del self._by_block[block]
                self._leaving.pop(block, asyncio.Event()).set()
                parts.requests.abandon()
                log.info("number.left", extra={"number": parts.number})
        for block, number in wanted.items():
            if block not in self._by_block:
                self._by_block[block] = self._make(number, block)
                log.info("number.found", extra={"number": number, "block": block})
        if self._by_block != before:
            self._by_number = {parts.number: parts for parts in self}
            self._changed.wake()

    async def load(self) -> None:
        """Read the settings of all numbers and put them in force."""
        for parts in self:
            await parts.config.load()

    def abandon(self) -> None:
        """Refuse requested restorations of all numbers, because this process owns no shard."""
        for parts in self:
            parts.requests.abandon()

    async def run(self, stop: asyncio.Event) -> None:
        """Run the services of all numbers until `stop` is set. Raises the first error of a service."""
        with self._changed.woken_by(stop):
            try:
                while not stop.is_set():
                    self._start()
                    changed = asyncio.create_task(self._changed.wait(None))
                    await asyncio.wait([changed, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
                    await asyncio.gather(changed, return_exceptions=True)
                    for task in [task for task in self._tasks if task.done()]:
                        del self._tasks[task]
                        task.result()
            finally:
                for leaving in self._leaving.values():
                    leaving.set()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self) -> None:
        for parts in self:
            if parts.block in self._leaving:
                continue
            leaving = self._leaving[parts.block] = asyncio.Event()
            services: tuple[service.Service, ...] = (parts.config, parts.used_keys)
            for each in services:
                task = asyncio.create_task(each.run(leaving), name=f"{each.name} {parts.number}")
                self._tasks[task] = parts.block


def make_config(
    settings: Settings, database: Database, number: str, *, safe: SecretSealer, secrets: WebhookSecrets, clock: Clock
) -> ConfigSource:
    """Create the reader of a number's settings."""
    return ConfigSource(
        database, number, safe=safe, secrets=secrets, clock=clock, with_user_ids=settings.cloud_user_ids
    )


def make_number(process: ProcessParts, number: str, block: int) -> NumberParts:
    """Create the parts of a number in this process.

    process: parts of the process; its settings, slots of posts and filter are those of the first number
    """
    settings, secrets, database = process.settings, process.settings.secrets, process.database
    masters = MasterKeys(secrets.master_key.keys, secrets.master_key.read)
    registrar = Registrar(database, number, process.network, secrets.registration_key, masters)
    webhook_secrets = WebhookSecrets(number, secrets.webhook_secret, process.safe)
    if block:
        config = make_config(
            settings, database, number, safe=process.safe, secrets=webhook_secrets, clock=process.clock
        )
        used_keys = UsedKeys(database, process.clock, account=number, is_first=False)
        shared = dataclasses.replace(process.shared, posts=Slots(), cloud_posts=Slots())
        upstream = NumberConnections(settings, process.clock)
        process = dataclasses.replace(process, config=config, used_keys=used_keys, shared=shared, upstream=upstream)
    requests = AccountRequests(registrar, auto_register=settings.auto_register)
    return NumberParts(number=number, block=block, process=process, requests=requests)
