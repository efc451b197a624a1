"""The business's questions about a contact's identity: what it is, and that a change of it is taken."""

from __future__ import annotations

import logging
from typing import Protocol

from coreapp.errors import Refused
from coreapp.journal import Change, Journal
from coreapp.peers import identities
from coreapp.peers.identities import Identities, Learnt
from coreapp.peers.sessions import SessionStore
from coreapp.upstream import Upstream
from tidings.client.errors import ClientError
from tidings.storage.business.identities import Identity
from tidings.wire import codes

log = logging.getLogger(__name__)

NOT_PRESENT = "hash: is not that of the contact's present identity"


class Contacts(Protocol):
    """Who can be written to."""

    async def require_valid(self, wa_id: str) -> None:
        """Raises `Refused`."""
        ...


class IdentityRequests:
    """Answers for one account."""

    def __init__(
        self,
        book: Identities,
        contacts: Contacts,
        store: SessionStore,
        upstream: Upstream,
        journal: Journal,
        *,
        account: str,
    ) -> None:
        self._book = book
        self._contacts = contacts
        self._store = store
        self._upstream = upstream
        self._journal = journal
        self._account = account

    async def describe(self, peer: str) -> Identity:
        """What is known of a contact; of one that nothing was exchanged with, what the servers say.

        Raises `Refused`: 1006 for no contact, 1011 while the servers are needed and away.
        """
        with self._book.pinned((peer,)):
            return await self._current(peer)

    async def acknowledge(self, peer: str, text: str) -> None:
        """The business takes a contact's identity, named by its hash.

        Raises `Refused` as `describe` does, and with 1009 for another hash than the present one.
        """
        with self._book.pinned((peer,)):
            identity = await self._current(peer)
            _require_present(identity, text)
            if identity.acknowledged:
                return
            await self._journal.write(Change(self._account, acknowledged_identities=((peer, identity.hash),)))
            # It may have changed again while this was written; then nothing was acknowledged.
            _require_present(self._book.find(peer) or identity, text)
            self._book.acknowledged(peer)
            log.info("identity.acknowledged", extra={"peer": peer, "hash": text})

    async def _current(self, peer: str) -> Identity:
        await self._book.load((peer,))
        identity = self._book.find(peer)
        return identity if identity is not None else await self._learn(peer)

    async def _learn(self, peer: str) -> Identity:
        """From the session at hand, or from the servers."""
        self._store.pin((peer,))
        try:
            await self._store.load((peer,))
            record = self._store.at_hand(peer)
            key = record.remote_identity if record is not None else await self._fetch(peer)
        finally:
            self._store.unpin((peer,))
        known = self._book.find(peer)
        if known is not None:
            # Learnt while we asked, and no older than what we have.
            return known
        learnt = Learnt()
        self._book.learn(peer, key, learnt)
        change = Change(self._account, learnt_identities=learnt.rows, new_callbacks=learnt.callbacks)
        committed = self._journal.put(change, urgent=True)
        self._book.announce(learnt, committed)
        await committed
        identity = self._book.find(peer)
        assert identity is not None
        return identity

    async def _fetch(self, peer: str) -> bytes:
        try:
            await self._contacts.require_valid(peer)
            bundles = await self._upstream.fetch_bundles((peer,))
        except ClientError as error:
            raise Refused(codes.NOT_READY, "the network cannot be asked for this contact's keys", 1) from error
        except Refused as refused:
            if refused.code == codes.INVALID_USER:
                raise Refused(codes.NOT_FOUND, codes.UNKNOWN_CONTACT) from refused
            raise
        if peer not in bundles:
            raise Refused(codes.NOT_FOUND, codes.UNKNOWN_CONTACT)
        return bundles[peer].identity_key


def _require_present(identity: Identity, text: str) -> None:
    if text != identities.text_of(identity.hash):
        raise Refused(codes.PARAMETER_INVALID, NOT_PRESENT)
