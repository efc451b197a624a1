"""Application settings in force: read at the start, after each change, and every 15 s."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Sequence

from coreapp import cloud_subscription, cloud_users, upstream_access, webhook_secrets
from coreapp.cloud_subscription import CloudSubscription
from coreapp.cloud_users import CloudUserIds
from coreapp.upstream_access import UpstreamAccess
from coreapp.webhook_secrets import WebhookSecrets
from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret
from tidings.keys import webhook_url
from tidings.storage.business import application_settings, blocked_users, certificates, changes, numbers
from tidings.storage.business.application_settings import ApplicationSettings
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.messages import Status
from tidings.storage.database import Connection, Database
from tidings.wire.cloud.identity import NumberIdentity, derive

log = logging.getLogger(__name__)

NO_HEADERS: webhook_url.Headers = {}
INTERVAL = 15.0  # seconds between two reads, so that a retired signing secret stops being used


@dataclasses.dataclass(frozen=True, slots=True)
class Preferences:
    """Events that the business wants as callbacks."""

    persist: bool  # whether undelivered callbacks are stored on disk
    statuses: frozenset[Status]  # statuses to report
    conversations: bool  # whether statuses name their conversation
    security: bool  # whether changes of identities are reported
    number_changes: bool  # whether changes of phone numbers are reported

    def wants(self, status: Status) -> bool:
        return status in self.statuses


class Config:
    """Settings of one account in force in one shard, and the values that the Coreapp derives from them."""

    def __init__(self, account: str) -> None:
        self.account = account
        self._changed: list[Callable[[], None]] = []
        self.is_closed = False
        # Headers that posts to the webhook carry in addition to ours.
        self.headers: webhook_url.Headers = NO_HEADERS
        # Users whose messages are not reported, and to whom none are sent.
        self.blocked: frozenset[str] = frozenset()
        # Upstream of the number and its credentials; None while it uses the network.
        self.upstream: UpstreamAccess | None = None
        self._upstream_changed: list[Callable[[UpstreamAccess | None, UpstreamAccess | None], None]] = []
        self._apply(ApplicationSettings(), b"", (), None)

    def close(self) -> None:
        """Stop following changes, because the shard is closed."""
        self.is_closed = True

    def on_change(self, call: Callable[[], None]) -> None:
        """Register `call` to be called after each change."""
        self._changed.append(call)

    def on_upstream_change(self, call: Callable[[UpstreamAccess | None, UpstreamAccess | None], None]) -> None:
        """Register `call` to be called with the earlier and the present upstream after each change."""
        self._upstream_changed.append(call)

    def take_upstream(self, upstream: UpstreamAccess | None) -> None:
        """Put an upstream in force and notify the listeners if it changed."""
        before, self.upstream = self.upstream, upstream
        if upstream != before:
            for call in self._upstream_changed:
                call(before, upstream)

    def note_stored_users(self, callbacks: Sequence[Callback]) -> None:
        """Called with callbacks that are on disk, and the ids of their users with them."""
        if self.cloud is not None and self.cloud.users is not None:
            self.cloud.users.note_stored(callbacks)

    def preferences(self) -> Preferences:
        return self._preferences

    @property
    def posts_v1(self) -> bool:
        """Return whether events are posted in the format of v1: unless only the Cloud API has a callback."""
        return bool(self.settings.webhooks.url) or self.cloud is None

    def take(
        self,
        settings: ApplicationSettings,
        authorities: bytes,
        signing_keys: tuple[bytes, ...],
        cloud: CloudSubscription | None = None,
        headers: webhook_url.Headers = NO_HEADERS,
    ) -> None:
        """Put new settings in force and notify the listeners if anything changed."""
        known = (self.settings, self.authorities, self.signing_keys, self.cloud, self.headers)
        if (settings, authorities, signing_keys, cloud, headers) != known:
            self.headers = headers
            self._apply(settings, authorities, signing_keys, cloud)
            for call in self._changed:
                call()

    def _apply(
        self,
        settings: ApplicationSettings,
        authorities: bytes,
        signing_keys: tuple[bytes, ...],
        cloud: CloudSubscription | None,
    ) -> None:
        self.settings = settings
        # Callbacks of the Cloud API; None for none.
        self.cloud = cloud
        # Keys that sign callbacks. Each of them adds a signature.
        self.signing_keys = signing_keys
        # PEM certificates that the webhook's TLS certificate is checked against; empty for those of the system.
        self.authorities = authorities
        posted = settings.webhooks.message
        wanted = {Status.FAILED}
        if posted.sent or settings.sent_status:
            wanted.add(Status.SENT)
        if posted.delivered:
            wanted.add(Status.DELIVERED)
        if posted.read:
            wanted.add(Status.READ)
        self._preferences = Preferences(
            settings.callback_persist,
            frozenset(wanted),
            conversations=not settings.webhook_payload_conversation_pricingmodel_disabled,
            security=settings.show_security_notifications,
            number_changes=settings.notify_user_change_number,
        )


class ConfigSource:
    """Service that reads the settings of one account for all shards of the process."""

    name = "config"

    def __init__(
        self,
        database: Database,
        account: str,
        *,
        safe: SecretSealer,
        secrets: WebhookSecrets,
        clock: Clock,
        with_user_ids: bool = False,
    ) -> None:
        """Create the service.

        with_user_ids: whether webhooks of the Cloud API name users by ids
        """
        self._with_user_ids = with_user_ids
        self._users: CloudUserIds | None = None
        self._database = database
        self._account = account
        self._safe = safe
        self._secrets = secrets
        self._clock = clock
        self._configs: list[Config] = []
        self._loading = asyncio.Lock()
        self._blocked: frozenset[str] = frozenset()
        self._blocked_version = 0  # version of the block lists that `_blocked` was read at
        self._blocked_state = (0, 0, 0)  # state of the account's list that `_blocked` was read at
        self._found: (
            tuple[ApplicationSettings, bytes, tuple[bytes, ...], CloudSubscription | None, webhook_url.Headers] | None
        ) = None
        self.upstream: UpstreamAccess | None = None  # upstream as of the last read; None for the network

    async def open(self) -> Config:
        """Return the current settings for one shard; they follow changes until they are closed."""
        config = Config(self._account)
        self._configs.append(config)
        try:
            await self.load()
        except BaseException:
            config.close()
            raise
        return config

    async def load(self) -> None:
        """Read the settings and put them in force before returning."""
        # One load at a time: an older result must not be applied after a newer one.
        async with self._loading:
            if self._with_user_ids and self._users is None:
                async with self._database.reading() as connection:
                    identity = await self._identity(connection)
                self._users = await cloud_users.find(self._database, identity, self._safe)
            async with self._database.reading() as connection:
                settings = await application_settings.find_settings(connection, self._account)
                kind = certificates.WEBHOOK_CA
                authorities = await certificates.find_certificate(connection, self._account, kind) or b""
                keys = await self._keys(connection)
                cloud = await cloud_subscription.find(
                    connection,
                    await self._identity(connection),
                    safe=self._safe,
                    first_secret=self._secrets.first.secret,
                    users=self._users,
                )
                await self._read_blocked(connection)
                self.upstream = await upstream_access.find_access(connection, self._safe, self._account)
            headers = webhook_url.headers_of(self._safe, self._account, settings)
            found = (webhook_url.opened(self._safe, self._account, settings), authorities, keys, cloud, headers)
            if found != self._found:
                self._found = found
                log.info("settings.changed", extra={"account": self._account})
            self._configs = [config for config in self._configs if not config.is_closed]
            for config in self._configs:
                config.blocked = self._blocked
                config.take_upstream(self.upstream)
                config.take(*found)

    async def run(self, stop: asyncio.Event) -> None:
        while not await service.wait_for(stop, INTERVAL):
            try:
                await self.load()
            except Exception as error:
                log.warning("settings.unreadable", extra={"error": repr(error)})

    async def _identity(self, connection: Connection) -> NumberIdentity:
        return derive(self._account, await numbers.find_waba_owner(connection, self._account))

    async def _read_blocked(self, connection: Connection) -> None:
        """Read the blocked users if the block list has changed since the last read."""
        version = (await changes.list_versions(connection)).get(changes.BLOCKED_USERS, 0)
        if version == self._blocked_version:
            return
        # The version is that of the lists of all numbers.
        state = await blocked_users.find_state(connection, self._account)
        if state != self._blocked_state:
            self._blocked = await blocked_users.list_all(connection, self._account)
            self._blocked_state = state
        self._blocked_version = version

    async def _keys(self, connection: Connection) -> tuple[bytes, ...]:
        try:
            secrets = await self._secrets.find(connection)
        except UnreadableSecret as error:
            # Receivers reject callbacks signed with another secret; the callbacks are retried until this is repaired.
            log.error("webhook.secrets_unreadable", extra={"error": str(error)})
            secrets = [self._secrets.first]
        return tuple(entry.key for entry in webhook_secrets.in_force(secrets, self._clock.now_ms()))
