"""Groups of a fleet: joining, leaving and sending, with distribution of the sender keys."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from handset import errors
from handset.devices.context import FleetContext
from handset.devices.device import Device
from handset.receiving.items import KeyWanted
from handset.receiving.sender_keys import KeyDistribution, SenderKeyStore
from handset.sender import MessageSender
from handset.sending.outbox import OutboxBatch
from tidings import e2ee
from tidings.aio.service import Wakeup, run_workers, wait_for
from tidings.aio.use_limit import UseLimit
from tidings.client import sender_keys
from tidings.client.errors import ClientError, NetworkUnavailable
from tidings.client.groups import GroupApi
from tidings.client.http import NetworkApi
from tidings.storage.database import Connection
from tidings.storage.handset import outbox
from tidings.wire import content
from tidings.wire.groups import DescribedGroup

log = logging.getLogger(__name__)

ATTEMPTS = 5  # attempts to find the group unchanged after its participants were sent the key
KEYS_SECONDS = 30.0  # seconds for the network to accept the keys for the participants
RETRY_SECONDS = 1.0
MAX_KEY_REQUESTS = (
    1000  # requests for keys; further ones are dropped, and the next unreadable message requests the key again
)


@dataclasses.dataclass(eq=False, repr=False)
class FleetGroups:
    """Groups of a fleet's devices.

    Methods that call the network raise `NetworkUnavailable`, `Unauthorized`, `NoSuchGroup`, `NotAdmin` and `NotStored`.
    At most `MAX_KEY_REQUESTS` requests for keys wait in memory. Messages that the network refused as stale stay in the
    outbox, whose limit bounds them.
    """

    context: FleetContext
    devices: Mapping[str, Device]
    sender: MessageSender
    _: dataclasses.KW_ONLY
    network: NetworkApi | None

    def __post_init__(self) -> None:
        self._key_work_limit: UseLimit[tuple[str, str, str, str]] = UseLimit(
            self.context.clock, limit=1, period=sender_keys.KEY_REQUEST_SECONDS, remembered=10 * MAX_KEY_REQUESTS
        )
        self._key_requests: OrderedDict[tuple[str, str, str, str], Device] = OrderedDict()
        self._stale: OrderedDict[tuple[str, int], tuple[Device, outbox.OutboxRow]] = OrderedDict()
        self._wakeup = Wakeup()
        self._distributing: weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock] = weakref.WeakValueDictionary()

    # Called on behalf of the user.

    async def create(self, number: str, subject: str) -> DescribedGroup:
        """Create a group with this number as its admin."""
        device = self.devices[number]
        group = await self._api(device).create(subject)
        await self._record_membership(device, group)
        return group

    async def join(self, number: str, code: str) -> DescribedGroup:
        """Join a group by a code or by a link that ends with it."""
        device = self.devices[number]
        group = await self._api(device).join(code_of(code))
        await self._record_membership(device, group)
        return group

    async def leave(self, number: str, group: str) -> None:
        """Leave a group and delete its keys."""
        device = self.devices[number]
        await self._api(device).leave(group)
        await self.sender.do(lambda keys, connection, _: keys.delete(connection, number, group))

    async def list_mine(self, number: str) -> Sequence[DescribedGroup]:
        """Return the groups of this number as the network knows them."""
        return await self._api(self.devices[number]).list_mine()

    async def get(self, number: str, group: str) -> DescribedGroup:
        """Return a group with its participants."""
        return await self._api(self.devices[number]).fetch(group)

    async def get_code(self, number: str, group: str) -> str:
        """Return the code by which others join."""
        return await self._api(self.devices[number]).invite(group)

    async def remove(self, number: str, group: str, others: Sequence[str]) -> DescribedGroup:
        """Remove other participants from a group."""
        return await self._api(self.devices[number]).remove(group, others)

    async def send(self, number: str, group: str, plaintext: bytes) -> str:
        """Send a content to all participants of a group. Returns its id when it is committed to the outbox.

        Participants without our key are sent it first, which requires a connection to the network.
        """
        return await self._send(self.devices[number], group, plaintext)

    # Called by the message store and the links.

    def queue_key_exchange(self, keys_to_request: Sequence[KeyWanted], keys_to_send: Sequence[KeyWanted]) -> None:
        """Queue requests for missing keys, and answers to such requests.

        keys_to_request: peers whose key we lack
        keys_to_send: peers that lack our key
        """
        for kind, wanted in (("request", keys_to_request), ("send", keys_to_send)):
            for device, peer, group in wanted:
                self._queue_key_work(kind, device, peer, group)

    def stale(self, device: Device, envelope: outbox.OutboxRow) -> None:
        """Queue a message that the network refused because the group has changed. It will be encrypted again."""
        if self.network is None:
            self.sender.give_up(device, envelope, "the group has changed")
            return
        self._stale[device.number, envelope.position] = (device, envelope)
        self.sender.set_aside(envelope)
        self._wakeup.wake()

    def reset(self) -> None:
        """Clear the stale messages. Called when the store is reopened, which sends the whole outbox again."""
        self._stale.clear()

    async def run(self, stop: asyncio.Event) -> None:
        """Process stale messages and requests for keys until `stop`, which cancels a call in progress.

        A stale message whose processing was cancelled is still in the outbox.
        """
        await run_workers(stop, self._work(stop))

    async def _work(self, stop: asyncio.Event) -> None:
        while True:
            if not await self._run_once():
                await wait_for(stop, RETRY_SECONDS)
            elif not self._stale and not self._key_requests:
                await self._wakeup.wait()

    async def _run_once(self) -> bool:
        """Process everything that is queued. Returns false when something must be tried again.

        What fails goes to the end of its queue, so that it does not hold up other groups and peers for long.
        """
        is_complete = True
        for key, (device, envelope) in list(self._stale.items()):
            try:
                await self._send_again(device, envelope)
            except (NetworkUnavailable, errors.NotStored):
                self._postpone(device.number, envelope.group_id)
                is_complete = False
                break
            except (ClientError, e2ee.E2EEError) as error:
                self.sender.give_up(device, envelope, str(error))
            self._stale.pop(key, None)
        for request, device in list(self._key_requests.items()):
            kind, number, peer, group = request
            try:
                await (self._request_key if kind == "request" else self._send_key)(device, peer, group)
            except (NetworkUnavailable, errors.NotStored):
                self._key_requests.move_to_end(request)
                return False
            except ClientError as error:
                fields = {"number": number, "peer": peer, "group": group, "error": str(error)}
                log.warning(f"sender_key.{kind}_failed", extra=fields)
            self._key_requests.pop(request, None)
        return is_complete

    def _postpone(self, number: str, group: str) -> None:
        """Move the stale messages of a number to a group to the end of their queue, in order."""
        for key, (_, envelope) in list(self._stale.items()):
            if (envelope.number, envelope.group_id) == (number, group):
                self._stale.move_to_end(key)

    # Keys.

    async def _send(self, device: Device, group: str, plaintext: bytes, message_id: str = "") -> str:
        """Send a content, after our key to the participants who lack it. Returns the id of the message.

        message_id: empty for a new id
        """
        for _ in range(ATTEMPTS):
            sent = await self._try_send(device, group, plaintext, message_id)
            if sent is not None:
                return sent
            await self._distribute_key(device, group)
        raise NetworkUnavailable("the group changes faster than its key can be distributed")

    async def _try_send(self, device: Device, group: str, plaintext: bytes, message_id: str) -> str | None:
        """Add a message to the outbox, and return its id; `None` when a participant lacks our key."""
        number = device.number

        async def work(keys: SenderKeyStore, connection: Connection, outbox: OutboxBatch) -> str | None:
            sealed = await keys.encrypt(connection, number, group, plaintext)
            if sealed is None:
                return None
            return outbox.add_group_message(device, group, *sealed, plaintext, message_id)

        sent: str | None = await self.sender.do(work)
        return sent

    async def _distribute_key(self, device: Device, group: str) -> None:
        """Send our key to all participants who lack it, and wait until the network has accepted these messages."""
        number = device.number
        lock = self._distributing.setdefault((number, group), asyncio.Lock())
        async with lock:
            fetched = await self._api(device).fetch(group)
            preparation: KeyDistribution = await self.sender.do(
                lambda keys, connection, _: keys.prepare_distribution(connection, number, fetched)
            )
            if preparation.missing:
                plaintext = content.encode_sender_key(group, preparation.distribution)
                sent = await self.sender.send_each(device, preparation.missing, plaintext)
                try:
                    async with asyncio.timeout(KEYS_SECONDS):
                        await self.sender.wait_until_gone(device, sent)
                except TimeoutError as error:
                    raise NetworkUnavailable("the key could not be distributed to the members of the group") from error
                fields = {"number": number, "group": group, "members": len(sent)}
                log.info("sender_key.distributed", extra=fields)
            await self.sender.do(
                lambda keys, connection, _: keys.mark_distributed(connection, number, group, fetched.epoch, preparation)
            )

    async def _send_again(self, device: Device, envelope: outbox.OutboxRow) -> None:
        """Encrypt a stale message again under the same id. The network kept nothing of it, so the id may be reused."""
        number, group = device.number, envelope.group_id
        plaintext = self.context.sealer.open_draft(envelope)
        await self.sender.do(lambda keys, connection, _: keys.mark_stale(connection, number, group, envelope.epoch))
        await self._send(device, group, plaintext, envelope.id)
        self.sender.settle(envelope)

    async def _request_key(self, device: Device, peer: str, group: str) -> None:
        await self.sender.send_each(device, [peer], content.encode_sender_key_request(group))
        log.info("sender_key.asked", extra={"number": device.number, "peer": peer, "group": group})

    async def _send_key(self, device: Device, peer: str, group: str) -> None:
        """Send our key to a peer, if the network confirms that the peer is a participant."""
        fetched = await self._api(device).fetch(group)
        if all(participant.number != peer for participant in fetched.participants):
            log.warning("sender_key.not_a_participant", extra={"number": device.number, "peer": peer, "group": group})
            return
        number = device.number
        distribution: bytes | None = await self.sender.do(
            lambda keys, connection, _: keys.distribution(connection, number, group)
        )
        if distribution is not None:
            await self.sender.send_each(device, [peer], content.encode_sender_key(group, distribution))

    def _queue_key_work(self, kind: str, device: Device, peer: str, group: str) -> None:
        key = (kind, device.number, peer, group)
        if self.network is not None and len(self._key_requests) < MAX_KEY_REQUESTS and self._key_work_limit.take(key):
            self._key_requests[key] = device
            self._wakeup.wake()

    async def _record_membership(self, device: Device, group: DescribedGroup) -> None:
        await self.sender.do(lambda keys, connection, _: keys.remember(connection, device.number, group))

    def _api(self, device: Device) -> GroupApi:
        if self.network is None:
            raise NetworkUnavailable("this fleet cannot query groups from the network")
        return GroupApi(self.network, device)


def code_of(text: str) -> str:
    """Return the code of an invitation: the last part of a link, or the text itself."""
    return text.strip().rstrip("/").rpartition("/")[2]
