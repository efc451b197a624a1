"""Link that Webapps connect to: each request is handled by the shard that it concerns, if this process owns it."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import logging
import time
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any

from prometheus_client import generate_latest

from coreapp import statistics
from coreapp.accepting.checks import GROUP
from coreapp.account.requests import AccountRequests
from coreapp.errors import KeyInUse, OutcomeUnknown, RequestRefused
from coreapp.peers.identities import text_of
from coreapp.shard import contents, emptying
from coreapp.shard.health import Databases
from coreapp.shard.numbers import CoreappNumbers, NumberParts
from coreapp.shard.open_links import OpenLinks
from coreapp.shard.open_shards import OpenShards
from coreapp.shard.request_starts import RequestStarts
from coreapp.shard.shard import Shard
from coreapp.webhook import callback_texts, requested
from tidings.aio.batcher import BatcherClosed, BatcherFull
from tidings.net import unauthenticated
from tidings.net.unauthenticated import UnauthenticatedLinks
from tidings.secrets import operator_key
from tidings.secrets.process_secrets import SecretKeys
from tidings.secrets.secret_sources import SecretUnavailable
from tidings.storage import outages
from tidings.storage.business.shards import LeaseLost
from tidings.wire import codes, core
from tidings.wire.connection import Connection

log = logging.getLogger(__name__)

UNREGISTERED = "the business's number is not registered: POST /v1/account sends a code"
ELSEWHERE = (
    "the business's number is registered elsewhere, so the network refuses this Coreapp: find out by whom, then restart"
    " the Coreapp, which takes the number back with the registration key"
)
OPERATORS_ONLY = (
    "only operators replay and purge: run the command with the settings of a Coreapp, whose master key opens this"
)
NO_GROUPS = "a number that sends through the Cloud API has no groups"
NOT_OF_NETWORK = (
    "the number sends through the Cloud API, which has its registration: neither registration nor backup exists here"
)
MAX_IN_FLIGHT = 10_000  # requests of one Webapp; further ones are refused with 1016
_ABOUT_CALLBACKS = core.ResendCallbacks | core.ReadCallback | core.QueueWebhook
_OPERATIONS = core.ReplayCallbacks | core.PurgeCallbacks | core.PurgeJobs | core.ShowMessage


def _operator_keys(master_keys: Iterable[bytes]) -> Sequence[bytes]:
    return [operator_key.derive(key).encode() for key in master_keys]


class _NotLookedUp(RequestRefused):
    """The request was refused before it was checked whether an earlier attempt had been carried out."""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class LinkKeys:
    """Keys that clients of the link present."""

    link: bytes
    operators: Sequence[bytes]  # each opens replays, purges and contents
    masters: SecretKeys

    @classmethod
    def of(cls, link_key: str, masters: SecretKeys) -> LinkKeys:
        """Return the link key, and the operator key of each master key."""
        return cls(link_key.encode(), _operator_keys(masters.keys), masters)

    async def refresh(self) -> None:
        """Read the master keys again, which may have been rotated. Keys that cannot be read stay."""
        try:
            self.operators = _operator_keys(await asyncio.to_thread(self.masters.read))
        except SecretUnavailable as error:
            log.warning("link.keys_unreadable", extra={"error": str(error)})

    def is_operator(self, key: str) -> bool:
        """Return whether this is the operator key of one of the master keys."""
        return any(hmac.compare_digest(key.encode(), own) for own in self.operators)


@dataclasses.dataclass(eq=False, repr=False)
class LinkHandler:
    """Connection of one Webapp, or of an operator's command. The first frame must be a `Hello` with the link key."""

    keys: LinkKeys
    node: str
    shards: OpenShards
    _: dataclasses.KW_ONLY
    numbers: CoreappNumbers  # numbers of the installation, and the requests about them
    unauthenticated_links: UnauthenticatedLinks  # limits on connections before their `Hello`
    links: OpenLinks | None = None  # open connections of the process, which end with it
    starts: RequestStarts | None = None  # starts the requests of all links of the process
    # probed for health requests in addition to the connection to the network; None to omit them
    databases: Databases | None = None

    def __post_init__(self) -> None:
        self._links = self.links if self.links is not None else OpenLinks()
        self._starts = self.starts if self.starts is not None else RequestStarts(lambda: self.shards.callbacks_due())
        self._trusted = False
        self._is_closed = False
        self._is_operator = False
        self._tasks: set[asyncio.Task[None]] = set()

    def opened(self, connection: Connection) -> None:
        """Register the connection. Nothing is sent before the `Hello`."""
        self.unauthenticated_links.opened(connection)

    def received(self, connection: Connection, frame: Any) -> None:
        if isinstance(frame, core.Hello):
            self._trusted = hmac.compare_digest(frame.key.encode(), self.keys.link)
            if not self._trusted:
                self.unauthenticated_links.refuse(connection, unauthenticated.WRONG_KEY)
                return
            self.unauthenticated_links.authenticated(connection)
            if frame.operator_key and not self.keys.is_operator(frame.operator_key):
                self._run(self._accept_after_refresh(connection, frame))
            else:
                self._accept_hello(connection, frame)
        elif not self._trusted:
            self.unauthenticated_links.refuse(connection, unauthenticated.NO_HELLO)
        elif isinstance(frame, core.Ping):
            connection.send(core.Done(frame.n))
        elif len(self._tasks) >= MAX_IN_FLIGHT or not self._starts.take(lambda: self._start(connection, frame)):
            full = core.Refused(frame.n, codes.OVERLOADED, "too many requests are in flight", 1)
            connection.send(_with_outcome(frame, full))

    def _accept_hello(self, connection: Connection, hello: core.Hello) -> None:
        """Respond to the `Hello` of a client with the link key."""
        self._is_operator = self.keys.is_operator(hello.operator_key)
        connection.send(core.Done(hello.n, core.LINK_VERSION))
        self._links.add(connection, is_notified=hello.version >= 3)

    async def _accept_after_refresh(self, connection: Connection, hello: core.Hello) -> None:
        await self.keys.refresh()
        if not self._is_closed:
            self._accept_hello(connection, hello)

    def _start(self, connection: Connection, request: Any) -> None:
        self._run(self._respond(connection, request))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def closed(self, connection: Connection, reason: str) -> None:
        """Unregister the connection. Requests in flight continue and may commit, but their responses are dropped."""
        self._is_closed = True
        self.unauthenticated_links.closed(connection)
        self._links.remove(connection)
        log.log(
            logging.INFO if self._trusted else logging.DEBUG,
            "link.closed",
            extra={"peer": connection.peer, "reason": reason},
        )

    async def _respond(self, connection: Connection, request: Any) -> None:
        started = time.perf_counter()
        response = await self._try(request)
        result = str(response.code) if isinstance(response, core.Refused) else "ok"
        took = statistics.handled(type(request).__name__, result)
        took.observe((time.perf_counter() - started) * 1000)
        connection.send(response)

    async def _try(self, request: Any) -> core.Response:
        response: core.Response
        try:
            response = await self._handle(request)
        except _NotLookedUp as refused:
            known = core.Refused(request.n, refused.code, refused.details, refused.retry_after)
            response = _with_outcome(request, known)
        except RequestRefused as refused:
            response = core.Refused(request.n, refused.code, refused.details, refused.retry_after)
        except KeyInUse as error:
            response = core.KeyTaken(request.n, error.in_progress)
        except (LeaseLost, BatcherClosed):
            lost = core.Refused(request.n, codes.NOT_PRIMARY_COREAPP, "this Coreapp has just lost its shard", 1)
            response = _with_outcome(request, lost)
        except BatcherFull as error:
            response = core.Refused(request.n, codes.OVERLOADED, f"the {error} queue is full", 1)
        except OutcomeUnknown as error:
            log.error("link.outcome_unknown", extra={**_named(request), "error": str(error)})
            details = "the database failed during the write: whether it was done is unknown"
            response = core.Refused(request.n, codes.INTERNAL_ERROR, details, unknown=True)
        except Exception as error:
            if outages.is_outage(error):
                # Logged in one line, because every request during an outage is logged.
                outage = outages.describe(error) or "the database cannot be used"
                log.error("link.request_failed", extra={**_named(request), "error": outage})
                response = core.Refused(request.n, codes.NOT_READY, outage, 1)
            else:
                log.exception("link.request_failed", extra=_named(request))
                response = core.Refused(request.n, codes.INTERNAL_ERROR, "the Coreapp could not complete the request")
        return response

    async def _handle(self, request: Any) -> core.Response:
        if isinstance(request, core.AcceptMessage):
            # The most frequent request. Groups belong to the first shard.
            shard = self._of(request.account, request.to if request.recipient_type != GROUP else "")
            message_id = await shard.accepting.requests.accept(request)
            return core.Accepted(request.n, message_id, request.to)
        if isinstance(request, core.GetMetrics):
            return core.Metrics(request.n, generate_latest().decode())
        if isinstance(request, core.GetHealth):
            return await self._health(request.n, request.account)
        if isinstance(request, core.UpstreamRequest):
            return await self._handle_upstream(request)
        if isinstance(request, _ABOUT_THE_NUMBER):
            if self._number(request.account).config.upstream is not None:
                raise RequestRefused(codes.ACCESS_DENIED, NOT_OF_NETWORK)
            return await _handle_number_request(self._number(request.account).requests, request)
        if isinstance(request, core.SettingsChanged):
            self._require_any()
            await self._number(request.account).config.load()
            return core.Done(request.n)
        if isinstance(request, _OPERATIONS):
            if not self._is_operator:
                raise RequestRefused(codes.ACCESS_DENIED, OPERATORS_ONLY)
            return await _operate(self._usable(self.shards.get(request.shard)), request)
        if isinstance(request, _ABOUT_CALLBACKS):
            return await self._handle_callback_request(request)
        if isinstance(request, core.EmptyQueues):
            return core.Purged(request.n, await emptying.empty_all(self.shards))
        if isinstance(request, core.CollectGarbage):
            # Runs once for the number; other owners have nothing to do.
            self._require_any()
            first = self.shards.first_of(self._number(request.account).block)
            if first is not None:
                first.retention.request(request.kind)
            return core.Done(request.n)
        if isinstance(request, core.GetIdentity | core.AcknowledgeIdentity):
            return await _handle_contact_request(self._of(request.account, request.wa_id), request)
        if isinstance(request, core.MarkRead):
            sending = self._of(request.account, request.sender).sending
            sender = await sending.read_marks.mark(request)
            if request.typing and sender:
                await sending.typing_indicators.show(sender, request.id, request.request_id)
            return core.Done(request.n)
        if isinstance(request, core.GroupRequest):
            shard = self._of(request.account)
            if shard.upstream is not None:
                raise RequestRefused(codes.ACCESS_DENIED, NO_GROUPS)
            return await shard.groups.requests.handle(request)
        if isinstance(request, core.CheckContacts):
            contacts = await self._of(request.account, request.of).peers.contacts.check(
                request.inputs,
                wait=request.wait,
                force=request.force_check,
                request_id=request.request_id,
                call_id=request.id,
            )
            return core.Contacts(request.n, contacts)
        raise RequestRefused(codes.INTERNAL_ERROR, f"unknown request {type(request).__name__}")

    async def _handle_callback_request(self, request: _ABOUT_CALLBACKS) -> core.Response:
        """Carry out a request of a number's administrator or test about its callbacks."""
        if isinstance(request, core.QueueWebhook):
            first = self._of(request.account)
            await requested.queue(first.context, first.webhook.queue, request)
            return core.Done(request.n)
        if isinstance(request, core.ReadCallback):
            number = self._number(request.account)
            here = self.shards.of_number(number.block)
            return await callback_texts.read(self._usable(here[0] if here else None, number).context, request)
        shard = self._usable(self.shards.get(request.shard))
        if shard.context.account != request.account:
            raise RequestRefused(codes.ACCESS_DENIED, f"shard {request.shard} is not one of {request.account}")
        letters, seqs = shard.webhook.dead_letters, request.seqs[:1000]
        return core.Replayed(request.n, await letters.replay(seqs, request.by, accepted=request.accepted))

    async def _handle_upstream(self, request: core.UpstreamRequest) -> core.Response:
        """Carry out a request about a number that sends through the Cloud API."""
        events = request.events if isinstance(request, core.TakeUpstreamEvents) else ()
        shard = self._of(request.account, next((event.peer for event in events if event.peer), ""))
        if shard.upstream is None:
            # The number was switched to the network, or this process does not know of the switch from it yet.
            raise _NotLookedUp(codes.NOT_PRIMARY_COREAPP, f"{request.account} does not use the Cloud API", 1)
        if isinstance(request, core.ChangeTemplate):
            await shard.upstream.templates.carry_out(request)
        elif isinstance(request, core.TakeUpstreamEvents):
            await shard.upstream.commit(request.events)
        else:
            await shard.upstream.profile.carry_out(request)
        return core.Done(request.n)

    def _number(self, account: str) -> NumberParts:
        found = self.numbers.of(account)
        if found is None:
            # It may have been added since the last poll.
            raise _NotLookedUp(codes.NOT_PRIMARY_COREAPP, f"this Coreapp does not serve {account}", retry_after=1)
        return found

    def _of(self, account: str, recipient: str = "") -> Shard:
        """Return the shard of a number's recipient, or the first one for an empty recipient. Raises `RequestRefused` if
        it cannot work now.
        """
        number = self._number(account)
        block = number.block
        shard = self._usable(self.shards.of(recipient, block) if recipient else self.shards.first_of(block), number)
        if shard.link.is_refused:
            raise _NotLookedUp(codes.NOT_READY, ELSEWHERE, retry_after=5)
        return shard

    def _usable(self, shard: Shard | None, number: NumberParts | None = None) -> Shard:
        if shard is None:
            raise self._not_owner(number)
        if shard.context.journal.is_stalled:
            # A request accepted now would get no response before the caller's timeout, and be carried out anyway.
            raise _NotLookedUp(codes.NOT_READY, "the database does not respond", retry_after=1)
        return shard

    def _require_any(self) -> None:
        if not len(self.shards):
            raise self._not_owner(self.numbers.first)

    def _not_owner(self, number: NumberParts | None) -> _NotLookedUp:
        if number is not None and number.requests.waits_for_code:
            return _NotLookedUp(codes.NOT_READY, UNREGISTERED, retry_after=5)
        return _NotLookedUp(codes.NOT_PRIMARY_COREAPP, "this Coreapp does not own the shard", retry_after=1)

    async def _health(self, n: int, account: str) -> core.Health:
        """Return the health of this process for one number, or for all if `account` is empty."""
        if account:
            found = self.numbers.of(account)
            numbers = [found] if found is not None else []
        else:
            numbers = list(self.numbers)
        shards = [shard for number in numbers for shard in self.shards.of_number(number.block)]
        if not shards:
            waits = any(number.requests.waits_for_code for number in numbers)
            return core.Health(n, "unregistered" if waits else "disconnected", self.node)
        status = "connected" if all(shard.link.connected for shard in shards) else "connecting"
        if any(shard.is_stopped for shard in shards):
            status = "disconnected"
        away = await self.databases.away() if self.databases is not None else []
        if away:
            status = "disconnected"
        is_elsewhere = any(shard.link.is_refused for shard in shards)
        if is_elsewhere:
            status = "unregistered"
        dropped = sum(shard.webhook.admission.dropped for shard in shards)
        owned = [shard.context.shard for shard in shards]
        return core.Health(n, status, self.node, owned, dropped, away, is_elsewhere)


async def _operate(shard: Shard, request: _OPERATIONS) -> core.Response:
    """Carry out an operator's request about the queues or stored contents."""
    if isinstance(request, core.ShowMessage):
        return await contents.show(shard, request)
    if isinstance(request, core.PurgeJobs):
        found = await shard.accepting.purge.purge(request.ids, request.by, request.choice, request.statuses)
        return core.Purged(request.n, found.deleted, found.stay)
    if isinstance(request, core.ReplayCallbacks):
        return core.Replayed(request.n, await shard.webhook.dead_letters.replay(request.seqs, request.by))
    purged = await shard.webhook.purge.purge(request.seqs, request.by, request.choice, request.statuses)
    return core.Purged(request.n, purged.deleted, purged.changed)


_ABOUT_THE_NUMBER = (core.RequestCode, core.VerifyCode, core.ExportKeys, core.RestoreKeys)


async def _handle_contact_request(shard: Shard, request: core.GetIdentity | core.AcknowledgeIdentity) -> core.Response:
    if isinstance(request, core.GetIdentity):
        identity = await shard.peers.identity_requests.describe(request.wa_id)
        return core.Identity(request.n, text_of(identity.hash), identity.created_at, identity.acknowledged)
    await shard.peers.identity_requests.acknowledge(request.wa_id, request.hash)
    await shard.groups.lost_keys.resend(request.wa_id)
    return core.Done(request.n)


async def _handle_number_request(requests: AccountRequests, request: Any) -> core.Response:
    if isinstance(request, core.ExportKeys):
        return core.Exported(request.n, await requests.export_keys(request.account, request.password))
    if isinstance(request, core.RequestCode):
        await requests.request_code(request.account, request.pin)
    elif isinstance(request, core.VerifyCode):
        await requests.verify(request.account, request.code)
    else:
        await requests.restore_keys(request.account, request.password, request.data)
    return core.Done(request.n)


def _with_outcome(request: Any, refused: core.Refused) -> core.Refused:
    """Mark the outcome of a refused repetition as unknown: an earlier attempt may have been carried out."""
    refused.unknown = isinstance(request, core.AcceptMessage) and request.repeated
    return refused


def _named(request: Any) -> dict[str, str]:
    """Return the log fields of a request: its type and its request id."""
    return {"request": type(request).__name__, "request_id": getattr(request, "request_id", "")}
