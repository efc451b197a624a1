"""Messages of a fleet's own: on a session, or on one that is set up from the recipient's keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from handset import errors
from handset.application import Application, DeviceEvent
from handset.devices.device import Device
from handset.groups.groups import GroupWork
from handset.receiving.items import OutgoingMessage
from handset.receiving.mailroom import Mailroom
from tidings import e2ee
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire.content import NULL_CONTENT

log = logging.getLogger(__name__)

OPEN_SECONDS = 5.0  # for the store to open, before a send is given up

# (device that asks, numbers): the bundles of those that are registered. Raises `NetworkAway`.
FetchBundles = Callable[[Device, Sequence[str]], Awaitable[Mapping[str, e2ee.PreKeyBundle]]]


class MessageSender:
    """Puts messages into the outbox, through whichever mailroom is open.

    mailroom: the one that is open now. What needs it waits a while for one, and then raises `NotStored`.
    """

    def __init__(self, application: Application, fetch: FetchBundles) -> None:
        self.mailroom: Mailroom | None = None
        self._application = application
        self._fetch = fetch
        self._opened = asyncio.Event()

    def use(self, mailroom: Mailroom | None) -> None:
        """The store is open, or closed."""
        self.mailroom = mailroom
        if mailroom is None:
            self._opened.clear()
        else:
            self._opened.set()

    async def send(self, device: Device, peer: str, plaintext: bytes) -> str:
        """The id, when it is safely in the outbox. Raises `NoSuchNumber`, `NetworkAway` and `NotStored`."""
        sent = await (await self._open_mailroom()).send(OutgoingMessage(device, peer, plaintext))
        return sent or await self._send_with_bundle(device, peer, plaintext)

    async def renew_session(self, device: Device, peer: str) -> None:
        """Set a new session with a peer up, by a message that nobody sees. Raises as `send` does."""
        await self._send_with_bundle(device, peer, NULL_CONTENT, new_session=True, resendable=False)

    async def send_each(self, device: Device, peers: Collection[str], plaintext: bytes) -> list[str]:
        """The same to each of these in private; the ids, without those of peers that are not registered (any more).

        Raises `NetworkAway` and `NotStored`.
        """
        mailroom = await self._open_mailroom()
        messages = [OutgoingMessage(device, peer, plaintext, resendable=False) for peer in peers]
        ids = await asyncio.gather(*(mailroom.send(message) for message in messages))
        sent = [id_ for id_ in ids if id_ is not None]
        missing = [message.peer for message, id_ in zip(messages, ids, strict=True) if id_ is None]
        if missing:
            for peer, bundle in (await self._fetch(device, missing)).items():
                try:
                    id_ = await mailroom.send(OutgoingMessage(device, peer, plaintext, bundle, resendable=False))
                except e2ee.E2EEError as error:
                    fields = {"number": device.number, "peer": peer, "error": str(error)}
                    log.warning("bundle.unusable", extra=fields)
                    continue
                sent += [id_] if id_ is not None else []
        return sent

    async def do(self, work: GroupWork) -> Any:
        """The result of this work, which one transaction of the store carries out. Raises `NotStored`."""
        return await (await self._open_mailroom()).do(work)

    async def wait_until_gone(self, device: Device, message_ids: Collection[str]) -> None:
        """Returns when the network has these messages of a device, or has refused them for good."""
        await (await self._open_mailroom()).wait_until_gone(device, message_ids)

    def settle(self, envelope: OutboxRow) -> None:
        """This envelope, which is out of its device's outbox, needs no longer be sent."""
        if self.mailroom is not None:
            self.mailroom.accepted((envelope.position,))

    def give_up(self, device: Device, envelope: OutboxRow, detail: str, reason: str = "") -> None:
        """The envelope is not sent, and the application is notified."""
        self.settle(envelope)
        to = envelope.peer or envelope.group
        fields = {"number": device.number, "to": to, "kind": envelope.kind, "reason": reason or detail}
        log.warning("envelope.refused", extra=fields)
        refs = envelope.refs or (envelope.id,)
        self._application.notify(DeviceEvent(device.number, to, "refused", refs, detail, envelope.group))

    async def _send_with_bundle(
        self, device: Device, peer: str, plaintext: bytes, *, new_session: bool = False, resendable: bool = True
    ) -> str:
        mailroom = await self._open_mailroom()
        bundle = (await self._fetch(device, [peer])).get(peer)
        if bundle is None:
            raise errors.NoSuchNumber(f"{peer} is not registered")
        try:
            sent = await mailroom.send(OutgoingMessage(device, peer, plaintext, bundle, new_session, resendable))
        except e2ee.E2EEError as error:
            raise errors.NoSuchNumber(f"the keys of {peer} cannot be used: {error}") from error
        assert sent is not None, "there is a bundle"
        return sent

    async def _open_mailroom(self) -> Mailroom:
        """The mailroom, which may still be opening, or opening again."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                while self.mailroom is None:
                    await self._opened.wait()
        except TimeoutError as error:
            raise errors.NotStored("the store is away") from error
        return self.mailroom
