"""Complete device whose keys and sessions are in memory only, for tools and trials.

Its state is lost when the process ends. A device that must not lose anything stores on disk:

- its identity, keys and token, before it registers
- each session, before a ciphertext of it is sent or its delivery is acknowledged
- every envelope, until it is accepted
"""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
import ssl
from collections.abc import Sequence

from tidings import e2ee
from tidings.client import keys, sessions, transports
from tidings.client.base_keys import AcceptedBaseKeys
from tidings.client.connection import DeviceConnection
from tidings.client.errors import NetworkRefusal
from tidings.client.http import NetworkApi
from tidings.client.listener import DeviceListener
from tidings.wire import content, device

log = logging.getLogger(__name__)

ONE_TIME_KEYS = 100  # keys, for as many first messages; later ones use the lasting keys


class MemoryDevice(DeviceListener[str]):
    """One number on one connection. Derive from it and override `received`, and other listener methods as needed.

    It reads messages between two devices only: group messages are acknowledged and ignored.
    """

    def __init__(self, url: str, number: str, *, tls: ssl.SSLContext | None = None) -> None:
        """Make a device with new keys.

        url:    URL of the network's HTTP API
        number: digits with the country code
        tls:    context that verifies the network's certificate; None for the system's authorities
        """
        self.number = number
        self._url = url
        self._tls = tls
        self._identity = e2ee.IdentityKeyPair.generate()
        self._own, _ = keys.generate(self._identity, 1, one_time=ONE_TIME_KEYS, lasting=True)
        signed = {key.key_id: key for key in (self._own.signed,) if key is not None}
        kyber = {key.key_id: key for key in (self._own.kyber_last,) if key is not None}
        self._one_time = {key.key_id: key for key in self._own.one_time}
        self._base_keys = AcceptedBaseKeys()
        self._prekeys = sessions.PreKeys(signed.get, self._one_time.get, kyber.get)
        self._registration_id = keys.generate_registration_id()
        self._sessions: dict[str, e2ee.SessionRecord] = {}
        # Unanswered envelopes by id, in order: resent after each login with the same bytes.
        self._unanswered: dict[str, device.Send] = {}
        self._connection = DeviceConnection[str](transports.over_http(url, tls=tls))

    async def register(self, registration_key: str) -> None:
        """Register the number for this device. Raises `ClientError`."""
        async with NetworkApi(self._url, tls=self._tls) as api:
            body = self._own.registration(self.number, self._registration_id, self._identity.public)
            token = await api.register(body, registration_key=registration_key)
        self._connection.log_in(self.number, token)

    async def run(self, stop: asyncio.Event) -> None:
        """Stay connected until `stop`."""
        await self._connection.run(self, stop)

    async def send(self, peer: str, plaintext: bytes) -> str:
        """Send a message to `peer`; return its id before the network accepts it.

        Raises `ClientError` and `e2ee.E2EEError`.
        """
        if peer not in self._sessions:
            bundle = (await self._connection.fetch(self.number, [peer])).get(peer)
            if bundle is None:
                raise NetworkRefusal(device.NO_SUCH_NUMBER, f"+{peer} is not registered")
            if peer not in self._sessions:  # a message of the peer may have arrived during the fetch
                self._sessions[peer] = sessions.initiate(self._identity, self._registration_id, bundle)
        return self.reply(peer, plaintext)

    def reply(self, peer: str, plaintext: bytes) -> str:
        """Send a message in an existing session; return its id before the network accepts it.

        Raises `e2ee.NoSession`.
        """
        if peer not in self._sessions:
            raise e2ee.NoSession(f"no session with +{peer}")
        kind, body = self._sessions[peer].encrypt(plaintext)
        envelope = device.Send(0, self.number, peer, secrets.token_hex(8), sessions.KINDS[kind], body)
        self._unanswered[envelope.id] = envelope
        self._connection.send(envelope, envelope.id)
        return envelope.id

    def received(self, peer: str, plaintext: bytes) -> None:
        """Called for each message: JSON, see `tidings.wire.content`. Null messages are left out."""

    def unreadable(self, peer: str, error: Exception) -> None:
        """Called for a message that could not be decrypted, or has no valid content."""
        log.warning("message.unreadable", extra={"number": self.number, "from": peer, "error": str(error)})

    # Events of the connection.

    def attached(self, number: str) -> None:
        for envelope in list(self._unanswered.values()):
            self._connection.send(envelope, envelope.id)

    def accepted(self, sent: Sequence[str]) -> None:
        for envelope_id in sent:
            self._unanswered.pop(envelope_id, None)

    def refused(self, sent: str, reason: str, detail: str) -> None:
        if reason != device.OVERLOADED:
            self._unanswered.pop(sent, None)

    def delivered(self, delivery: device.Deliver) -> None:
        if delivery.kind in (device.PREKEY, device.MESSAGE):
            try:
                plaintext = self._read(delivery)
                if content.decode(plaintext).type != content.NULL:
                    self.received(delivery.sender, plaintext)
            except (e2ee.E2EEError, content.UnreadableContent) as error:
                self.unreadable(delivery.sender, error)
        self._connection.acknowledge([delivery])

    def _read(self, delivery: device.Deliver) -> bytes:
        record = self._sessions.get(delivery.sender)
        if delivery.kind == device.MESSAGE:
            record, plaintext = sessions.read(record, delivery.body)
        else:
            first = e2ee.PreKeySignalMessage.parse(delivery.body)
            before, check = record, functools.partial(self._base_keys.check, delivery.sender)
            record, plaintext = sessions.read_first(
                record, self._identity, first, delivery.body, self._prekeys, check=check
            )
            if record is not before:
                self._base_keys.accept(delivery.sender, first)
            if first.prekey_id is not None:
                self._one_time.pop(first.prekey_id, None)
        self._sessions[delivery.sender] = record
        return plaintext
