"""Check the Cloud API's posts, and pass their events to the Coreapps that own the shards."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import hmac
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

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
from tidings.wire.codes import INVALID_REQUEST, NOT_READY
from webapp.api.upstream import envelope, standin_numbers
from webapp.api.upstream.envelope import AccountEvent, NumberEvent, WrongChange, WrongEnvelope
from webapp.coreapps.interfaces import NumberShardOwners
from webapp.http.envelope import CALLBACKS
from webapp.http.errors import AdministratorRequired, APIError, InvalidRequest, Problem, Unauthenticated, UnknownPath

log = logging.getLogger(__name__)

POSTS = Counter("tidings_cloud_callbacks_total", "Posts to the callback of the real Cloud API, by result", ["result"])
ACCOUNT_EVENTS = Counter(
    "tidings_cloud_account_events_total", "Events of accounts that the Cloud API posted", ["field"]
)

MAX_BODY = 3 * 1024 * 1024  # bytes
# Events and bytes of one request to a Coreapp.
MAX_EVENTS, MAX_BYTES = 500, 1024 * 1024
# Milliseconds for which the Cloud API repeats a post.
_REPEATED_MS = 7 * 86_400_000
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


class SecretsDiffer(APIError):
    """The post also concerns a number whose app secret was replaced by another one. It must be repeated."""

    def __init__(self) -> None:
        details = "X-Hub-Signature-256: is not that of a number in the body; replace its app secret too"
        super().__init__([Problem(NOT_READY, details)], retry_after=60)


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
    standin_prefix: str  # first digits of numbers that stand for users

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

    def verify(self, secret: str, mode: str, token: str) -> None:
        """Check the verification of a callback. Raises `UnknownPath`, and `CallbackForbidden` for a wrong token."""
        callback = self._find(secret)
        right = callback.credentials.verify_token.encode()
        if mode != "subscribe" or not hmac.compare_digest(token.encode(), right):
            POSTS.labels("not verified").inc()
            raise CallbackForbidden("hub.verify_token: is not the one of `tidings number upstream`")
        log.info("upstream.verified", extra={"number": callback.upstream.account})

    async def commit(self, secret: str, body: bytes) -> None:
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
        by_number, has_unmatched = self._sort(callback, events)
        for account, found in by_number.items():
            addressed = await self._addressed(account, found)
            requests += [self._pass_on(account, of_shard) for of_shard in self._by_shard(account, addressed)]
        results = await asyncio.gather(*requests, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                POSTS.labels("failed").inc()
                raise result
        if has_unmatched:
            POSTS.labels("unmatched").inc()
            log.error("upstream.unmatched", extra={"number": callback.upstream.account})
            raise SecretsDiffer
        POSTS.labels("taken").inc()

    def recognises(self, path: str) -> bool:
        """Return whether a path has the secret of a callback, which only the Cloud API knows."""
        return path.startswith(CALLBACKS) and _hash(path.removeprefix(CALLBACKS)) in self._callbacks

    def require_known(self, secret: str) -> None:
        """Raise `UnknownPath` for a path without a callback."""
        self._find(secret)

    def require_signed(self, secret: str, signature: bytes, body: bytes) -> None:
        """Check the signature of a post. Raises `UnknownPath` and `Unauthenticated`."""
        callback = self._find(secret)
        given = signature.removeprefix(_SIGNATURE)
        secrets = callback.credentials.secrets_at(self.clock.now_ms())
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

    def _sort(
        self, callback: _Callback, events: Iterator[NumberEvent | AccountEvent | WrongChange]
    ) -> tuple[dict[str, list[NumberEvent]], bool]:
        """Return the events by number, and whether others concern numbers whose app is not known now.

        Events of other apps are dropped.
        """
        numbers, unmatched = self._numbers_of(callback)
        found: dict[str, list[NumberEvent]] = {}
        foreign, has_unmatched = 0, False
        for event in events:
            if isinstance(event, AccountEvent):
                if event.field in _OF_TEMPLATES:
                    change = NumberEvent("", core.UpstreamEvent(core.TEMPLATE_EVENT, b""))
                    found.setdefault(callback.upstream.account, []).append(change)
                ACCOUNT_EVENTS.labels(event.field if event.field in _FIELDS else "other").inc()
                log.info("upstream.account_event", extra=dict(envelope.shown(event)))
            elif isinstance(event, WrongChange):
                POSTS.labels("malformed").inc()
                log.error("upstream.malformed", extra={"number": callback.upstream.account, "error": event.error})
            elif event.phone_number_id in numbers:
                found.setdefault(numbers[event.phone_number_id], []).append(event)
            elif event.phone_number_id in unmatched:
                has_unmatched = True
            else:
                foreign += 1
        if foreign:
            log.info("upstream.foreign", extra={"number": callback.upstream.account, "count": foreign})
        return found, has_unmatched

    def _numbers_of(self, callback: _Callback) -> tuple[Mapping[str, str], Set[str]]:
        """Return the numbers of a callback's app by their ids in the Cloud API, and the ids whose app is not known.

        It is not known shortly after the app secret of the number or of the callback was replaced.
        """
        now = self.clock.now_ms()
        secrets = set(callback.credentials.secrets_at(now))
        numbers: dict[str, str] = {}
        unmatched: set[str] = set()
        for other in self._callbacks.values():
            if not secrets.isdisjoint(other.credentials.secrets_at(now)):
                numbers[other.upstream.phone_number_id] = other.upstream.account
            elif _was_replaced(callback, now) or _was_replaced(other, now):
                unmatched.add(other.upstream.phone_number_id)
        return numbers, unmatched

    async def _addressed(self, account: str, found: Sequence[NumberEvent]) -> Sequence[core.UpstreamEvent]:
        """Return the events with the numbers that decide about their shards.

        For some countries a status names another number than the one that the message was sent to.
        """
        about: Sequence[str] = ()
        if self.coreapps.of(account).has_shards:
            about = list(dict.fromkeys(each.about for each in found if each.about))
        if not about and not any(each.user_id for each in found):
            return [each.event for each in found]
        async with self.database.reading() as connection:
            rows = await messages.list_progress(connection, account, about) if about else ()
            numbers = await standin_numbers.choose(connection, account, self.standin_prefix, found)
        peers = {row.id: row.peer for row in rows}
        return [_addressed(each, peers.get(each.about, ""), numbers.get(each.user_id, "")) for each in found]

    def _by_shard(self, account: str, events: Sequence[core.UpstreamEvent]) -> Iterable[list[core.UpstreamEvent]]:
        """Return the events of a number by shard, in their order."""
        owners = self.coreapps.of(account)
        by_shard: dict[int, list[core.UpstreamEvent]] = {}
        for event in events:
            # An event without a usable number is dropped, and counted, by the owner of the first shard.
            peer = event.peer if addresses.is_wa_id(event.peer) else ""
            shard = owners.shard_of(peer)
            by_shard.setdefault(shard, []).append(
                event if peer == event.peer else core.UpstreamEvent(event.kind, event.body)
            )
        return by_shard.values()

    async def _pass_on(self, account: str, events: Sequence[core.UpstreamEvent]) -> None:
        """Pass the events of a shard to its owner, in one request after the other."""
        owners = self.coreapps.of(account)
        for chunk in _chunks(events):
            make = functools.partial(core.TakeUpstreamEvents, account=account, events=chunk)
            peer = next((event.peer for event in chunk if event.peer), "")
            if peer:
                await owners.call_repeatable(peer, make, core.Done)
            else:
                await owners.call_primary_repeatable(make, core.Done)


def _was_replaced(callback: _Callback, now: int) -> bool:
    """Return whether the app secret was replaced so lately that posts are repeated for it.

    now: Unix milliseconds
    """
    credentials = callback.credentials
    return bool(credentials.previous_app_secret) and now < credentials.previous_until + _REPEATED_MS


def _addressed(found: NumberEvent, sent_to: str, stand_in: str) -> core.UpstreamEvent:
    """Return an event with the number that decides about its shard.

    sent_to: number that the message of a status was sent to; empty if it is not known
    stand_in: number that stands for the user; empty for none
    """
    event = found.event
    if event.kind == core.MESSAGE_EVENT and stand_in:
        return msgspec.structs.replace(event, peer=stand_in, user_id=found.user_id)
    return msgspec.structs.replace(event, peer=sent_to or event.peer or stand_in)


def _chunks(events: Sequence[core.UpstreamEvent]) -> Iterator[list[core.UpstreamEvent]]:
    """Yield the events in lists of a bounded size."""
    chunk: list[core.UpstreamEvent] = []
    size = 0
    for event in events:
        if chunk and (len(chunk) >= MAX_EVENTS or size + len(event.body) > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(event)
        size += len(event.body)
    if chunk:
        yield chunk


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
