"""Check the Cloud API's posts, and pass their events to the Coreapps that own the shards."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
import logging
from collections.abc import Iterator, Mapping, Sequence

import msgspec
from prometheus_client import Counter

from tidings.aio.clock import Clock
from tidings.e2ee.installation_secrets import SecretSealer
from tidings.keys import upstream_credentials
from tidings.keys.upstream_credentials import UpstreamCredentials
from tidings.storage.business import messages, upstreams
from tidings.storage.business.upstreams import Upstream
from tidings.storage.database import Database
from tidings.wire import addresses, core
from tidings.wire.codes import ACCESS_DENIED, INVALID_REQUEST
from webapp.api.upstream import envelope
from webapp.api.upstream.envelope import AccountEvent, NumberEvent, WrongEnvelope
from webapp.coreapps.interfaces import NumberShardOwners
from webapp.http.errors import AdministratorRequired, InvalidRequest, Unauthenticated, UnknownPath

log = logging.getLogger(__name__)

POSTS = Counter("tidings_cloud_callbacks_total", "Posts to the callback of the real Cloud API, by result", ["result"])
ACCOUNT_EVENTS = Counter(
    "tidings_cloud_account_events_total", "Events of accounts that the Cloud API posted", ["field"]
)

MIRRORED = "the number's templates are those of its WABA: change them at the Cloud API, from where they are mirrored"
MAX_BODY = 3 * 1024 * 1024  # bytes
# Events and bytes of one request to a Coreapp.
MAX_EVENTS, MAX_BYTES = 500, 1024 * 1024
_SIGNATURE = b"sha256="
# Fields with a label in the metrics; the Cloud API may add others at any time.
_FIELDS = frozenset(
    {
        "message_template_status_update",
        "message_template_quality_update",
        "message_template_components_update",
        "template_category_update",
        "phone_number_quality_update",
        "phone_number_name_update",
        "business_capability_update",
        "account_update",
        "account_alerts",
        "account_review_update",
        "security",
        "user_preferences",
    }
)


# Fields after which the templates are read again.
_OF_TEMPLATES = frozenset(field for field in _FIELDS if field.startswith(("message_template_", "template_")))


class CallbackForbidden(AdministratorRequired):
    """The verification of the callback names another token."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Callback:
    """Callback of one number."""

    upstream: Upstream
    credentials: UpstreamCredentials


@dataclasses.dataclass(eq=False, repr=False)
class UpstreamCallbacks:
    """Callbacks of the numbers that send through the Cloud API. Changes are effective within a second."""

    database: Database
    coreapps: NumberShardOwners
    _: dataclasses.KW_ONLY
    safe: SecretSealer
    clock: Clock

    def __post_init__(self) -> None:
        # By the hash of the secret in the path.
        self._callbacks: Mapping[bytes, _Callback] = {}

    async def poll(self) -> None:
        """Read the callbacks."""
        found: dict[bytes, _Callback] = {}
        async with self.database.reading() as connection:
            for upstream in await upstreams.list_all(connection):
                credentials = await upstream_credentials.find(connection, self.safe, upstream.account)
                if credentials is not None:
                    found[_hash(credentials.callback_secret)] = _Callback(upstream, credentials)
        self._callbacks = found

    def require_own_templates(self, account: str) -> None:
        """Raise `InvalidRequest` for a number whose templates are those of its WABA at the Cloud API."""
        if any(callback.upstream.account == account for callback in self._callbacks.values()):
            raise InvalidRequest.because(ACCESS_DENIED, MIRRORED)

    def verify(self, secret: str, mode: str, token: str) -> None:
        """Check the verification of a callback. Raises `UnknownPath`, and `CallbackForbidden` for a wrong token."""
        callback = self._find(secret)
        right = callback.credentials.verify_token.encode()
        if mode != "subscribe" or not hmac.compare_digest(token.encode(), right):
            POSTS.labels("not verified").inc()
            raise CallbackForbidden("hub.verify_token: is not the one of `tidings number upstream`")
        log.info("upstream.verified", extra={"number": callback.upstream.account})

    async def take(self, secret: str, body: bytes) -> None:
        """Commit the events of a post whose signature was checked. Raises `UnknownPath`, `InvalidRequest`, and the
        errors of the Coreapp link, after which the post must be repeated.
        """
        callback = self._find(secret)
        try:
            events = envelope.read(body)
        except WrongEnvelope as error:
            POSTS.labels("malformed").inc()
            log.error("upstream.malformed", extra={"number": callback.upstream.account, "error": str(error)})
            raise InvalidRequest.because(INVALID_REQUEST, f"the body is no webhook: {error}") from None
        requests = []
        for account, found in self._sort(callback, events).items():
            addressed = await self._addressed(account, found)
            requests += [self._pass_on(account, chunk) for chunk in self._chunks(account, addressed)]
        results = await asyncio.gather(*requests, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                POSTS.labels("failed").inc()
                raise result
        POSTS.labels("taken").inc()

    def require_signed(self, secret: str, signature: bytes, body: bytes) -> None:
        """Check the signature of a post. Raises `UnknownPath` and `Unauthenticated`."""
        callback = self._find(secret)
        given = signature.removeprefix(_SIGNATURE)
        secrets = callback.credentials.secrets_at(int(self.clock.now() * 1000))
        right = [hmac.new(key.encode(), body, hashlib.sha256).hexdigest().encode() for key in secrets]
        if not any(hmac.compare_digest(given, digest) for digest in right):
            POSTS.labels("wrong signature").inc()
            log.warning("upstream.wrong_signature", extra={"number": callback.upstream.account})
            raise Unauthenticated("X-Hub-Signature-256: is not that of the app secret", scheme="HMAC")

    def _find(self, secret: str) -> _Callback:
        callback = self._callbacks.get(_hash(secret))
        if callback is None:
            POSTS.labels("unknown").inc()
            raise UnknownPath("/cloud/callbacks/…")
        return callback

    def _sort(self, callback: _Callback, events: Iterator[NumberEvent | AccountEvent]) -> dict[str, list[NumberEvent]]:
        """Return the events by number, without those of numbers that do not send through this app."""
        numbers = {
            other.upstream.phone_number_id: other.upstream.account
            for other in self._callbacks.values()
            if hmac.compare_digest(other.credentials.app_secret.encode(), callback.credentials.app_secret.encode())
        }
        found: dict[str, list[NumberEvent]] = {}
        foreign = 0
        for event in events:
            if isinstance(event, AccountEvent):
                if event.field in _OF_TEMPLATES:
                    change = NumberEvent("", core.UpstreamEvent(core.TEMPLATE_EVENT, b""))
                    found.setdefault(callback.upstream.account, []).append(change)
                ACCOUNT_EVENTS.labels(event.field if event.field in _FIELDS else "other").inc()
                log.info("upstream.account_event", extra=dict(envelope.shown(event)))
            elif event.phone_number_id in numbers:
                found.setdefault(numbers[event.phone_number_id], []).append(event)
            else:
                foreign += 1
        if foreign:
            log.info("upstream.foreign", extra={"number": callback.upstream.account, "count": foreign})
        return found

    async def _addressed(self, account: str, found: Sequence[NumberEvent]) -> Sequence[core.UpstreamEvent]:
        """Return the events with the numbers that decide about their shards.

        For some countries a status names another number than the one that the message was sent to.
        """
        about = list(dict.fromkeys(each.about for each in found if each.about))
        peers: dict[str, str] = {}
        if about and self.coreapps.of(account).has_shards:
            async with self.database.reading() as connection:
                rows = await messages.list_progress(connection, account, about)
            peers = {row.id: row.peer for row in rows}
        return [
            msgspec.structs.replace(each.event, peer=peers[each.about]) if each.about in peers else each.event
            for each in found
        ]

    def _chunks(self, account: str, events: Sequence[core.UpstreamEvent]) -> Iterator[list[core.UpstreamEvent]]:
        """Yield the events of a number by shard, in their order, in requests of a bounded size."""
        owners = self.coreapps.of(account)
        by_shard: dict[int, list[core.UpstreamEvent]] = {}
        for event in events:
            # An event without a usable number is dropped, and counted, by the owner of the first shard.
            peer = event.peer if addresses.is_wa_id(event.peer) else ""
            shard = owners.shard_of(peer)
            by_shard.setdefault(shard, []).append(
                event if peer == event.peer else core.UpstreamEvent(event.kind, event.body)
            )
        for found in by_shard.values():
            chunk: list[core.UpstreamEvent] = []
            size = 0
            for event in found:
                if chunk and (len(chunk) >= MAX_EVENTS or size + len(event.body) > MAX_BYTES):
                    yield chunk
                    chunk, size = [], 0
                chunk.append(event)
                size += len(event.body)
            if chunk:
                yield chunk

    async def _pass_on(self, account: str, events: list[core.UpstreamEvent]) -> None:
        def make(n: int) -> core.TakeUpstreamEvents:
            return core.TakeUpstreamEvents(n, account, events)

        owners = self.coreapps.of(account)
        peer = next((event.peer for event in events if event.peer), "")
        if peer:
            await owners.call_repeatable(peer, make, core.Done)
        else:
            await owners.call_primary_repeatable(make, core.Done)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
