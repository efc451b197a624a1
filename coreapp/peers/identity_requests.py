"""Requests of the business about a contact's identity: reading it and acknowledging a change."""

from __future__ import annotations

import dataclasses
import logging

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.journal.change import Change
from coreapp.peers.contact_cache import ContactCache
from coreapp.peers.identities import Identities, IdentityFindings, text_of
from coreapp.peers.sessions import SessionStore
from tidings.client.errors import ClientError
from tidings.storage.business.identities import StoredIdentity
from tidings.wire import codes

log = logging.getLogger(__name__)

NOT_PRESENT = "hash: is not the hash of the contact's current identity"


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class IdentityRequests:
    """Handles the requests for one account."""

    context: ShardContext
    identities: Identities
    sessions: SessionStore
    _: dataclasses.KW_ONLY
    contacts: ContactCache

    async def describe(self, peer: str) -> StoredIdentity:
        """Return the identity of a contact; for one without previous exchange, the identity from the network.

        Raises `RequestRefused`: 1006 for an unknown contact, 1011 if the network is needed and unreachable.
        """
        with self.identities.pinned((peer,)):
            return await self._current(peer)

    async def acknowledge(self, peer: str, text: str) -> None:
        """Acknowledge a contact's identity.

        Raises `RequestRefused` as `describe` does, and with 1009 if the hash is not that of the present identity.

        text: hash of the identity, base64
        """
        with self.identities.pinned((peer,)):
            identity = await self._current(peer)
            _require_present(identity, text)
            if identity.acknowledged:
                return
            await self.context.journal.write(
                Change(self.context.account, acknowledged_identities=((peer, identity.hash),))
            )
            # The identity may have changed during the write; then nothing was acknowledged.
            _require_present(self.identities.find(peer) or identity, text)
            self.identities.acknowledged(peer)
            log.info("identity.acknowledged", extra={"peer": peer, "hash": text})

    async def _current(self, peer: str) -> StoredIdentity:
        await self.identities.load((peer,))
        identity = self.identities.find(peer)
        return identity if identity is not None else await self._learn(peer)

    async def _learn(self, peer: str) -> StoredIdentity:
        """Learn the identity from the session in memory, or from the network."""
        with self.sessions.pinned((peer,)):
            await self.sessions.load((peer,))
            record = self.sessions.in_memory(peer)
            key = record.remote_identity if record is not None else await self._fetch(peer)
        known = self.identities.find(peer)
        if known is not None:
            # It was found during the request, and is at least as recent.
            return known
        findings = IdentityFindings()
        self.identities.learn(peer, key, findings)
        change = Change(self.context.account, found_identities=findings.rows, new_callbacks=findings.callbacks)
        committed = self.context.journal.put(change, urgent=True)
        self.identities.announce(findings, committed)
        await committed
        identity = self.identities.find(peer)
        assert identity is not None
        return identity

    async def _fetch(self, peer: str) -> bytes:
        try:
            await self.contacts.require_valid(peer)
            bundles = await self.context.network_connection.fetch_bundles((peer,))
        except ClientError as error:
            raise RequestRefused(
                codes.NOT_READY, "the keys of this contact cannot be fetched from the network", 1
            ) from error
        except RequestRefused as refused:
            if refused.code == codes.INVALID_USER:
                raise RequestRefused(codes.NOT_FOUND, codes.UNKNOWN_CONTACT) from refused
            raise
        if peer not in bundles:
            raise RequestRefused(codes.NOT_FOUND, codes.UNKNOWN_CONTACT)
        return bundles[peer].identity_key


def _require_present(identity: StoredIdentity, text: str) -> None:
    if text != text_of(identity.hash):
        raise RequestRefused(codes.PARAMETER_INVALID, NOT_PRESENT)
