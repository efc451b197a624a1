"""Groups of a fleet: join and leave, send, and see to it that everybody has the keys they need."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from handset import errors
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.groups.sender_keys import KeyDistribution, SenderKeyStore
from handset.sending.outbox import OutboxBatch
from tidings import e2ee
from tidings.client import sender_keys
from tidings.client.errors import ClientError, NetworkAway
from tidings.client.groups import GroupApi
from tidings.client.http import NetworkApi
from tidings.runtime.allowance import Allowance
from tidings.runtime.service import wait_for
from tidings.storage.database import Connection
from tidings.storage.handset import outbox
from tidings.wire import content
from tidings.wire.groups import DescribedGroup

log = logging.getLogger(__name__)

ATTEMPTS = 5  # to find a group unchanged while its members are given the key
KEYS_SECONDS = 30.0  # for the network to accept the keys given to the members
RETRY_SECONDS = 1.0
MAX_CHORES = 1000  # one more request for a key is dropped: the next unreadable message asks again

KeyWanted = tuple[Device, str, str]  # device, peer, group
# Must not raise anything but errors of the database.
GroupWork = Callable[[SenderKeyStore, Connection, OutboxBatch], Awaitable[Any]]


class GroupTransport(Protocol):
    """Transactions of the store, and messages to single members."""

    async def do(self, work: GroupWork) -> Any:
        """The result of this work, which one transaction of the store carries out. Raises `NotStored`."""
        ...

    async def send_each(self, device: Device, peers: Collection[str], plaintext: bytes) -> list[str]:
        """Send to each of them in private; the ids. Those who cannot be sent to are left out. Raises `NetworkAway`."""
        ...

    async def wait_until_gone(self, device: Device, message_ids: Collection[str]) -> None: ...

    def settle(self, envelope: outbox.OutboxRow) -> None:
        """This envelope needs no longer be sent."""
        ...

    def give_up(self, device: Device, envelope: outbox.OutboxRow, detail: str) -> None:
        """The same, and the application is notified."""
        ...


class FleetGroups:
    """Raises `NetworkAway`, `Unauthorized`, `NoSuchGroup`, `NotAdmin` and `NotStored` wherever it calls the network.

    In memory, at most `MAX_CHORES` requests for keys; messages that the network found stale stay in the outbox and are
    bounded with it.
    """

    def __init__(
        self, context: FleetContext, devices: Mapping[str, Device], transport: GroupTransport, *, api: NetworkApi | None
    ) -> None:
        self._devices = devices
        self._transport = transport
        self._vault = context.vault
        self._network = api
        self._asked: Allowance[tuple[str, str, str, str]] = Allowance(
            context.clock, limit=1, period=sender_keys.ASK_SECONDS, remembered=10 * MAX_CHORES
        )
        self._chores: OrderedDict[tuple[str, str, str, str], Device] = OrderedDict()
        self._stale: OrderedDict[tuple[str, int], tuple[Device, outbox.OutboxRow]] = OrderedDict()
        self._wakeup = asyncio.Event()
        self._preparing: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()

    # What a person does.

    async def create(self, number: str, subject: str) -> DescribedGroup:
        """A new group, with this number as its admin."""
        device = self._devices[number]
        group = await self._api(device).create(subject)
        await self._remember(device, group)
        return group

    async def join(self, number: str, code: str) -> DescribedGroup:
        """Join by a code, or by a link that ends with it."""
        device = self._devices[number]
        group = await self._api(device).join(code_of(code))
        await self._remember(device, group)
        return group

    async def leave(self, number: str, group: str) -> None:
        """Be in the group no more, and forget its keys."""
        device = self._devices[number]
        await self._api(device).leave(group)
        await self._transport.do(lambda keys, connection, _: keys.forget(connection, number, group))

    async def list_mine(self, number: str) -> Sequence[DescribedGroup]:
        """As the network knows them."""
        return await self._api(self._devices[number]).list_mine()

    async def get(self, number: str, group: str) -> DescribedGroup:
        """One of them, with its participants."""
        return await self._api(self._devices[number]).fetch(group)

    async def get_code(self, number: str, group: str) -> str:
        """The code that others join with."""
        return await self._api(self._devices[number]).invite(group)

    async def remove(self, number: str, group: str, others: Sequence[str]) -> DescribedGroup:
        """Remove others from the group."""
        return await self._api(self._devices[number]).remove(group, others)

    async def send(self, number: str, group: str, plaintext: bytes) -> str:
        """Send a content to everybody in a group; returns its id when it is safely in the outbox.

        Whoever there does not have our key is given it first, for which the network must be there.
        """
        device = self._devices[number]
        for _ in range(ATTEMPTS):
            sent = await self._post(device, group, plaintext)
            if sent is not None:
                return sent
            await self._prepare(device, group)
        raise NetworkAway("the group changes faster than its members can be given the key")

    # Reports of the mailroom and the links.

    def keys_wanted(self, to_ask: Sequence[KeyWanted], to_give: Sequence[KeyWanted]) -> None:
        """We lack the keys of these, and those lack ours."""
        for kind, wanted in (("ask", to_ask), ("give", to_give)):
            for device, peer, group in wanted:
                self._want(kind, device, peer, group)

    def stale(self, device: Device, envelope: outbox.OutboxRow) -> None:
        """The network says that the group is another by now: it has to be encrypted for those who are there."""
        if self._network is None:
            self._transport.give_up(device, envelope, "the group has changed")
            return
        self._stale[device.number, envelope.position] = (device, envelope)
        self._wakeup.set()

    def reset(self) -> None:
        """The store is opened again, and everything in the outbox is sent again."""
        self._stale.clear()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`."""
        stopping = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                self._wakeup.clear()
                if not await self._run_once():
                    await wait_for(stop, RETRY_SECONDS)
                    continue
                if not self._stale and not self._chores:
                    waking = asyncio.ensure_future(self._wakeup.wait())
                    await asyncio.wait([stopping, waking], return_when=asyncio.FIRST_COMPLETED)
                    waking.cancel()
        finally:
            stopping.cancel()

    async def _run_once(self) -> bool:
        """One pass over what is to be done; false when the network or the store was away."""
        for key, (device, envelope) in list(self._stale.items()):
            try:
                await self._send_again(device, envelope)
            except (NetworkAway, errors.NotStored):
                return False
            except (ClientError, e2ee.E2EEError) as error:
                self._transport.give_up(device, envelope, str(error))
            self._stale.pop(key, None)
        while self._chores:
            (kind, number, peer, group), device = next(iter(self._chores.items()))
            try:
                await (self._ask if kind == "ask" else self._give)(device, peer, group)
            except (NetworkAway, errors.NotStored):
                return False
            except ClientError as error:
                fields = {"number": number, "peer": peer, "group": group, "error": str(error)}
                log.warning(f"sender_key.{kind}_failed", extra=fields)
            self._chores.pop((kind, number, peer, group), None)
        return True

    # Keys.

    async def _post(self, device: Device, group: str, plaintext: bytes, message_id: str = "") -> str | None:
        number = device.number

        async def work(keys: SenderKeyStore, connection: Connection, outbox: OutboxBatch) -> str | None:
            sealed = await keys.encrypt(connection, number, group, plaintext)
            if sealed is None:
                return None
            return outbox.add_group_message(device, group, *sealed, plaintext, message_id)

        sent: str | None = await self._transport.do(work)
        return sent

    async def _prepare(self, device: Device, group: str) -> None:
        """Give our key to everybody who lacks it, and wait until the network has accepted that."""
        number = device.number
        lock = self._preparing.setdefault((number, group), asyncio.Lock())
        async with lock:
            there = await self._api(device).fetch(group)
            preparation: KeyDistribution = await self._transport.do(
                lambda keys, connection, _: keys.prepare(connection, number, there)
            )
            if preparation.missing:
                plaintext = content.encode_sender_key(group, preparation.distribution)
                sent = await self._transport.send_each(device, preparation.missing, plaintext)
                try:
                    async with asyncio.timeout(KEYS_SECONDS):
                        await self._transport.wait_until_gone(device, sent)
                except TimeoutError as error:
                    raise NetworkAway("the members of the group could not be given the key") from error
                fields = {"number": number, "group": group, "members": len(sent)}
                log.info("sender_key.distributed", extra=fields)
            await self._transport.do(
                lambda keys, connection, _: keys.mark_distributed(connection, number, group, there.epoch, preparation)
            )

    async def _send_again(self, device: Device, envelope: outbox.OutboxRow) -> None:
        """Nothing of a stale message was kept by the network, so another ciphertext may have its id."""
        assert envelope.draft is not None
        number, group = device.number, envelope.group
        plaintext = self._vault.open_draft(number, group, envelope.id, envelope.draft)
        await self._transport.do(lambda keys, connection, _: keys.mark_stale(connection, number, group, envelope.epoch))
        for _ in range(ATTEMPTS):
            if await self._post(device, group, plaintext, envelope.id) is not None:
                self._transport.settle(envelope)
                return
            await self._prepare(device, group)
        raise NetworkAway("the group changes faster than its members can be given the key")

    async def _ask(self, device: Device, peer: str, group: str) -> None:
        await self._transport.send_each(device, [peer], content.encode_sender_key_request(group))
        log.info("sender_key.asked", extra={"number": device.number, "peer": peer, "group": group})

    async def _give(self, device: Device, peer: str, group: str) -> None:
        """Only to whoever is in the group by what the network says now."""
        there = await self._api(device).fetch(group)
        if all(participant.number != peer for participant in there.participants):
            log.warning("sender_key.stranger", extra={"number": device.number, "peer": peer, "group": group})
            return
        number = device.number
        distribution: bytes | None = await self._transport.do(
            lambda keys, connection, _: keys.distribution(connection, number, group)
        )
        if distribution is not None:
            await self._transport.send_each(device, [peer], content.encode_sender_key(group, distribution))

    def _want(self, kind: str, device: Device, peer: str, group: str) -> None:
        key = (kind, device.number, peer, group)
        if self._network is not None and len(self._chores) < MAX_CHORES and self._asked.take(key):
            self._chores[key] = device
            self._wakeup.set()

    async def _remember(self, device: Device, group: DescribedGroup) -> None:
        await self._transport.do(lambda keys, connection, _: keys.remember(connection, device.number, group))

    def _api(self, device: Device) -> GroupApi:
        if self._network is None:
            raise NetworkAway("this fleet has no way to ask the network about groups")
        return GroupApi(self._network, device)


def code_of(text: str) -> str:
    """The code of an invitation: the last part of a link, or the text itself."""
    return text.strip().rstrip("/").rpartition("/")[2]
