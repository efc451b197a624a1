"""Sending of messages on existing sessions, or on new ones that are set up from the recipient's keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from handset import errors
from handset.application import Application, DeviceEvent
from handset.devices.device import Device
from handset.receiving.items import GroupWork, OutgoingMessage
from handset.receiving.message_store import MessageStore
from tidings import e2ee
from tidings.storage.handset.outbox import OutboxRow
from tidings.wire.content import NULL_CONTENT

log = logging.getLogger(__name__)

OPEN_SECONDS = 5.0  # seconds to wait for the store to open, before a send is given up

# Arguments: requesting device and numbers. Returns the bundles of registered numbers. Raises `NetworkUnavailable`.
FetchBundles = Callable[[Device, Sequence[str]], Awaitable[Mapping[str, e2ee.PreKeyBundle]]]


class MessageSender:
    """Adds messages to the outbox through the message store that is open.

    Methods wait up to `OPEN_SECONDS` for an open message store, and then raise `NotStored`.
    """

    def __init__(self, application: Application, fetch: FetchBundles) -> None:
        self.store: MessageStore | None = None  # open message store; `None` while the store is closed
        self._application = application
        self._fetch = fetch
        self._opened = asyncio.Event()

    def use(self, store: MessageStore | None) -> None:
        """Set the open message store, or `None` when it was closed."""
        self.store = store
        if store is None:
            self._opened.clear()
        else:
            self._opened.set()

    async def send(self, device: Device, peer: str, plaintext: bytes) -> str:
        """Send a message. Returns its id when it is committed to the outbox.

        Raises `NoSuchNumber`, `NetworkUnavailable` and `NotStored`.
        """
        if peer == device.number:
            raise errors.NoSuchNumber("a number cannot write to itself")
        sent = await (await self._open_store()).send(OutgoingMessage(device, peer, plaintext))
        return sent or await self._send_with_bundle(device, peer, plaintext)

    async def renew_session(self, device: Device, peer: str) -> None:
        """Set up a new session with a peer by sending an invisible message. Raises the errors of `send`."""
        await self._send_with_bundle(device, peer, NULL_CONTENT, new_session=True, resendable=False)

    async def send_each(self, device: Device, peers: Collection[str], plaintext: bytes) -> list[str]:
        """Send the same content to each peer individually. Returns the ids, without those of unregistered peers.

        Raises `NetworkUnavailable` and `NotStored`.
        """
        store = await self._open_store()
        messages = [OutgoingMessage(device, peer, plaintext, resendable=False) for peer in peers]
        ids = await asyncio.gather(*(store.send(message) for message in messages))
        sent = [id_ for id_ in ids if id_ is not None]
        missing = [message.peer for message, id_ in zip(messages, ids, strict=True) if id_ is None]
        if missing:
            for peer, bundle in (await self._fetch(device, missing)).items():
                try:
                    id_ = await store.send(OutgoingMessage(device, peer, plaintext, bundle, resendable=False))
                except e2ee.E2EEError as error:
                    fields = {"number": device.number, "peer": peer, "error": str(error)}
                    log.warning("bundle.unusable", extra=fields)
                    continue
                sent += [id_] if id_ is not None else []
        return sent

    async def do(self, work: GroupWork) -> Any:
        """Do work in one transaction of the store, and return its result. Raises `NotStored`."""
        return await (await self._open_store()).do(work)

    async def wait_until_gone(self, device: Device, message_ids: Collection[str]) -> None:
        """Wait until the network has accepted these messages of a device, or has refused them permanently."""
        await (await self._open_store()).dispatcher.wait_until_gone(device, message_ids)

    def set_aside(self, envelope: OutboxRow) -> None:
        """Make room in the outbox for the envelope that will replace this one."""
        if self.store is not None:
            self.store.dispatcher.set_aside(envelope)

    def settle(self, envelope: OutboxRow) -> None:
        """Mark an envelope that was removed from its device's outbox as finished, so that it is not sent again."""
        if self.store is not None:
            self.store.accepted((envelope.position,))

    def give_up(self, device: Device, envelope: OutboxRow, detail: str, reason: str = "") -> None:
        """Give up an envelope and notify the application."""
        self.settle(envelope)
        to = envelope.peer or envelope.group_id
        fields = {"number": device.number, "to": to, "kind": envelope.kind, "reason": reason or detail}
        log.warning("envelope.refused", extra=fields)
        refs = envelope.refs or (envelope.id,)
        self._application.notify(DeviceEvent(device.number, to, "refused", refs, detail, envelope.group_id))

    async def _send_with_bundle(
        self, device: Device, peer: str, plaintext: bytes, *, new_session: bool = False, resendable: bool = True
    ) -> str:
        store = await self._open_store()
        bundle = (await self._fetch(device, [peer])).get(peer)
        if bundle is None:
            raise errors.NoSuchNumber(f"+{peer} is not registered")
        try:
            sent = await store.send(OutgoingMessage(device, peer, plaintext, bundle, new_session, resendable))
        except e2ee.E2EEError as error:
            raise errors.NoSuchNumber(f"the keys of +{peer} cannot be used: {error}") from error
        assert sent is not None, "there is a bundle"
        return sent

    async def _open_store(self) -> MessageStore:
        """Return the message store. Waits if it is being opened or reopened."""
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                while self.store is None:
                    await self._opened.wait()
        except TimeoutError as error:
            raise errors.NotStored("the store is unavailable") from error
        return self.store
