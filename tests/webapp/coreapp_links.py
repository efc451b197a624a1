"""Helpers for tests of the link to the Coreapps: shard maps, requests, and states of connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from harness import metrics
from tests.coreapp.signals import soon
from tests.webapp.fake_coreapp import FakeCoreapp
from tidings.storage.business.nodes import CoreappNode, NodeRecord
from tidings.storage.business.shards import Owner
from tidings.wire import addresses, core
from webapp.coreapps.links import CoreappLinks


class ScriptedMap:
    """Shard map that the test changes."""

    def __init__(self, *owners: Owner) -> None:
        self.now: Sequence[Owner] | Exception = owners
        self.others: Sequence[NodeRecord] = []

    async def owners(self) -> Sequence[Owner]:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    async def members(self) -> Sequence[NodeRecord]:
        return self.others


def owner(coreapp: FakeCoreapp | None, shard: int = 0, epoch: int = 1) -> Owner:
    return Owner(shard, "node", coreapp.address if coreapp else "", epoch)


def standby(address: str) -> NodeRecord:
    """Return a live process that owns nothing."""
    return NodeRecord(CoreappNode("other", "1", address, 5.0), 0, 0, 0.0)


Link = Callable[..., Awaitable[CoreappLinks]]


async def accept(links: CoreappLinks, to: str = "15550110001") -> core.Accepted:
    return await links.call(
        to, lambda n: core.AcceptMessage(n=n, account="1", to=to, kind="text", content=b"{}"), core.Accepted
    )


async def accept_once(links: CoreappLinks, to: str = "15550110001") -> core.Accepted:
    """Call as a request of the API does: with an id, and repeated when no response comes."""

    def make(n: int, *, repeated: bool = False) -> core.AcceptMessage:
        return core.AcceptMessage(
            n=n, account="1", to=to, kind="text", content=b"{}", id="gBEG-of-the-webapp", repeated=repeated
        )

    return await links.call(to, make, core.Accepted, again=lambda n: make(n, repeated=True))


async def check_contact(links: CoreappLinks) -> core.Contacts:
    return await links.call_primary_repeatable(
        lambda n: core.CheckContacts(n=n, account="1", inputs=["15550110001"]), core.Contacts
    )


async def noticed() -> None:
    """Wait until the loss of every connection was detected."""
    await soon(lambda: not metrics.value("tidings_webapp_coreapps_connected"))


def cut(links: CoreappLinks) -> None:
    """Cut the only connection at the end of this event-loop iteration, before its buffer is written."""
    [peer] = links.connections._peers.values()
    assert peer._connection is not None
    asyncio.get_running_loop().call_soon(peer._connection.abort, "cut by the test")


def of_shard(shard: int, count: int) -> str:
    return next(str(n) for n in range(15550110000, 15550119999) if addresses.shard_of(str(n), count) == shard)
