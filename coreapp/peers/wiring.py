"""Wiring of recipients' state for one shard."""

from __future__ import annotations

import dataclasses

from coreapp.context import ShardContext
from coreapp.peers.contact_cache import ContactCache
from coreapp.peers.identities import Identities
from coreapp.peers.identity_requests import IdentityRequests
from coreapp.peers.service_window import ServiceWindow
from coreapp.peers.sessions import SessionStore
from coreapp.webhook.wiring import Webhook


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ShardPeers:
    contacts: ContactCache
    sessions: SessionStore
    identities: Identities
    identity_requests: IdentityRequests
    window: ServiceWindow


async def wire_peers(context: ShardContext, webhook: Webhook) -> ShardPeers:
    """Wire the package and read the unacknowledged identity changes. Raises `LeaseLost`."""
    contacts = ContactCache(context, webhook.admission)
    contacts.fill()
    sessions = SessionStore(context.database, context.device)
    identities = Identities(context)
    await identities.open()
    context.config.on_change(identities.settings_changed)
    return ShardPeers(
        contacts=contacts,
        sessions=sessions,
        identities=identities,
        identity_requests=IdentityRequests(context, identities, sessions, contacts=contacts),
        window=ServiceWindow(context),
    )
