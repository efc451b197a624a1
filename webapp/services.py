"""Wires the parts of a Webapp together and runs them."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import logging
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI

import webapp.account.routes
import webapp.app
import webapp.application_settings.routes
import webapp.contacts.routes
import webapp.health.routes
import webapp.messages.routes
import webapp.metrics.routes
import webapp.templates.routes
import webapp.users.routes
from tidings.runtime import service
from tidings.runtime.clock import Clock, SystemClock
from tidings.storage import schema
from tidings.storage.database import Database
from webapp import server
from webapp.account.service import Account
from webapp.application_settings.service import Settings as ApplicationSettings
from webapp.contacts.service import Contacts
from webapp.coreapp_link import CoreappLinks, DatabaseShardMap, FixedShardMap, ShardMap
from webapp.gate import Gate, Limit
from webapp.health.service import HealthCheck
from webapp.messages.service import Messages
from webapp.ratelimit import TokenBucket
from webapp.settings import Settings
from webapp.templates.service import Templates
from webapp.tokens import RevocationWatch, Tokens
from webapp.users.credentials import Credentials
from webapp.users.guessing import Guessing
from webapp.users.passwords import Hasher
from webapp.users.service import Users

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Ready:
    """What a Webapp offers once it serves."""

    url: str
    host: str
    port: int


@dataclasses.dataclass(frozen=True, slots=True)
class Parts:
    """The parts that `run` starts and tests look at."""

    app: FastAPI
    links: CoreappLinks
    tokens: Tokens
    watch: RevocationWatch
    templates: Templates
    users: Users
    credentials: Credentials
    hasher: Hasher


def assemble(settings: Settings, database: Database, shard_map: ShardMap, hasher: Hasher, clock: Clock) -> Parts:
    """Every part, none started."""
    tokens = Tokens(database, settings.secrets.jwt_key, clock)
    links = CoreappLinks(
        shard_map,
        settings.secrets.link_key,
        patience=settings.coreapp_patience,
        timeout=settings.coreapp_timeout,
    )
    credentials = Credentials(database, hasher, Guessing(clock), clock)
    users = Users(database, settings.account, tokens, credentials, hasher, clock)
    gate = Gate(tokens, settings.api_key)
    messages_limit = Limit("messages", TokenBucket(settings.messages_rate, settings.messages_burst, clock))
    contacts_limit = Limit("contacts", TokenBucket(settings.contacts_rate, settings.contacts_burst, clock))
    templates = Templates(database, settings.account, clock)
    max_body = settings.max_body
    app = webapp.app.create(
        [
            webapp.messages.routes.routes(Messages(links, templates), gate, messages_limit, max_body=max_body),
            webapp.contacts.routes.routes(Contacts(links), gate, contacts_limit, max_body=max_body),
            webapp.users.routes.routes(users, gate, max_body=max_body),
            webapp.application_settings.routes.routes(ApplicationSettings(database, links), gate, max_body=max_body),
            webapp.templates.routes.routes(templates, gate, max_body=max_body),
            webapp.account.routes.routes(Account(database, links, hasher), gate, max_body=max_body),
            webapp.health.routes.routes(HealthCheck(links), gate),
            webapp.metrics.routes.routes(gate),
        ],
        max_requests=settings.max_requests,
    )
    return Parts(app, links, tokens, RevocationWatch(tokens, clock), templates, users, credentials, hasher)


async def run(settings: Settings, stop: asyncio.Event, ready: Callable[[Any], None] | None = None) -> None:
    """Serve until `stop`; `ready` is called with a `Ready` once requests are taken.

    Raises `SettingsError` when the address is taken, `PendingMigrations`, and `ServiceFailed`.
    """
    listener = server.listen(settings.host, settings.port)
    database = Database(settings.database, "business")
    hasher = Hasher()
    try:
        await schema.prepare(database, migrate=settings.embedded)
        shard_map = FixedShardMap(*settings.coreapp) if settings.coreapp else DatabaseShardMap(database)
        parts = assemble(settings, database, shard_map, hasher, SystemClock())
        await parts.credentials.start()
        await parts.users.ensure_administrator()
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"

        def started() -> None:
            # What was made so far stays for good: looking through it again would cost a fifth of the time of a busy
            # Webapp, in pauses of 50 ms.
            gc.collect()
            gc.freeze()
            log.info("http.listening", extra={"url": url})
            if ready is not None:
                ready(Ready(url, host, port))

        http = server.HTTPServer(parts.app, [listener], started)
        await service.run_services([parts.links, parts.watch, parts.templates, http], stop)
    finally:
        listener.close()
        hasher.close()
        await database.close()
