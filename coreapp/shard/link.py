"""Link that Webapps connect to: each request is handled by the shard that it concerns, if this process owns it."""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import logging
import time
from collections.abc import Iterable
from typing import Any

from prometheus_client import generate_latest

from coreapp import statistics
from coreapp.accepting.checks import GROUP
from coreapp.account.requests import AccountRequests
from coreapp.config import ConfigSource
from coreapp.errors import KeyInUse, OutcomeUnknown, RequestRefused
from coreapp.peers.identities import text_of
from coreapp.shard.health import Databases
from coreapp.shard.open_links import OpenLinks
from coreapp.shard.open_shards import OpenShards
from coreapp.shard.shard import Shard
from tidings.aio.batcher import BatcherClosed, BatcherFull
from tidings.net import unauthenticated
from tidings.net.unauthenticated import UnauthenticatedLinks
from tidings.secrets import operator_key
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
MAX_IN_FLIGHT = 10_000  # requests of one Webapp; further ones are refused with 1016
_OPERATIONS = core.ReplayCallbacks | core.PurgeCallbacks | core.PurgeJobs


class _NotLookedUp(RequestRefused):
    """The request was refused before a check whether an earlier attempt was carried out."""


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class LinkKeys:
    """Keys that clients of the link present."""

    link: bytes
    operators: tuple[bytes, ...]  # each opens replays and purges

    @classmethod
    def of(cls, link_key: str, master_keys: Iterable[bytes]) -> LinkKeys:
        """Return the link key, and the operator key of each master key."""
        return cls(link_key.encode(), tuple(operator_key.derive(key).encode() for key in master_keys))

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
    config: ConfigSource  # of the process
    unauthenticated_links: UnauthenticatedLinks  # limits on connections before their `Hello`
    links: OpenLinks | None = None  # open connections of the process, which end with it
    requests: AccountRequests | None = None  # handles requests about the number itself; None to refuse them
    # probed for health requests in addition to the connection to the network; None to omit them
    databases: Databases | None = None

    def __post_init__(self) -> None:
        self._links = self.links if self.links is not None else OpenLinks()
        self._trusted = False
        self._is_operator = False
        self._tasks: set[asyncio.Task[None]] = set()

    def opened(self, connection: Connection) -> None:
        """Register the connection. Nothing is sent before the `Hello`."""
        self.unauthenticated_links.opened(connection)

    def received(self, connection: Connection, frame: Any) -> None:
        if isinstance(frame, core.Hello):
            self._trusted = hmac.compare_digest(frame.key.encode(), self.keys.link)
            self._is_operator = self._trusted and self.keys.is_operator(frame.operator_key)
            if self._trusted:
                self.unauthenticated_links.authenticated(connection)
                connection.send(core.Done(frame.n, core.LINK_VERSION))
                self._links.add(connection, is_notified=frame.version >= 3)
            else:
                self.unauthenticated_links.refuse(connection, unauthenticated.WRONG_KEY)
        elif not self._trusted:
            self.unauthenticated_links.refuse(connection, unauthenticated.NO_HELLO)
        elif isinstance(frame, core.Ping):
            connection.send(core.Done(frame.n))
        elif len(self._tasks) >= MAX_IN_FLIGHT:
            full = core.Refused(frame.n, codes.OVERLOADED, "too many requests are in flight", 1)
            connection.send(_as_known(frame, full))
        else:
            task = asyncio.get_running_loop().create_task(self._answer(connection, frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def closed(self, connection: Connection, reason: str) -> None:
        """Unregister the connection. Requests in flight continue and may commit, but their responses are dropped."""
        self.unauthenticated_links.closed(connection)
        self._links.remove(connection)
        log.log(
            logging.INFO if self._trusted else logging.DEBUG,
            "link.closed",
            extra={"peer": connection.peer, "reason": reason},
        )

    async def _answer(self, connection: Connection, question: Any) -> None:
        started = time.perf_counter()
        answer = await self._try(question)
        result = str(answer.code) if isinstance(answer, core.Refused) else "ok"
        took = statistics.answered(type(question).__name__, result)
        took.observe((time.perf_counter() - started) * 1000)
        connection.send(answer)

    async def _try(self, question: Any) -> core.Answer:
        answer: core.Answer
        try:
            answer = await self._ask(question)
        except _NotLookedUp as refused:
            known = core.Refused(question.n, refused.code, refused.details, refused.retry_after)
            answer = _as_known(question, known)
        except RequestRefused as refused:
            answer = core.Refused(question.n, refused.code, refused.details, refused.retry_after)
        except KeyInUse as error:
            answer = core.KeyTaken(question.n, error.in_progress)
        except (LeaseLost, BatcherClosed):
            lost = core.Refused(question.n, codes.NOT_PRIMARY_COREAPP, "this Coreapp has just lost its shard", 1)
            answer = _as_known(question, lost)
        except BatcherFull as error:
            answer = core.Refused(question.n, codes.OVERLOADED, f"the {error} queue is full", 1)
        except OutcomeUnknown as error:
            log.error("link.outcome_unknown", extra={**_named(question), "error": str(error)})
            details = "the database failed during the write: whether it was done is unknown"
            answer = core.Refused(question.n, codes.INTERNAL_ERROR, details, unknown=True)
        except Exception as error:
            if outages.is_outage(error):
                # Logged in one line, because every request during an outage is logged.
                outage = outages.describe(error) or "the database cannot be used"
                log.error("link.question_failed", extra={**_named(question), "error": outage})
                answer = core.Refused(question.n, codes.NOT_READY, outage, 1)
            else:
                log.exception("link.question_failed", extra=_named(question))
                answer = core.Refused(question.n, codes.INTERNAL_ERROR, "the Coreapp could not complete the request")
        return answer

    async def _ask(self, question: Any) -> core.Answer:
        if isinstance(question, core.AcceptMessage):
            # The most frequent request. Groups belong to the first shard.
            shard = self._of(question.to if question.recipient_type != GROUP else "")
            message_id = await shard.accepting.requests.accept(question)
            return core.Accepted(question.n, message_id, question.to)
        if isinstance(question, core.GetMetrics):
            return core.Metrics(question.n, generate_latest().decode())
        if isinstance(question, core.GetHealth):
            return await self._health(question.n)
        if self.requests is not None and isinstance(question, _ABOUT_THE_NUMBER):
            return await _ask_about_the_number(self.requests, question)
        if isinstance(question, core.SettingsChanged):
            self._require_any()
            await self.config.load()
            return core.Done(question.n)
        if isinstance(question, _OPERATIONS):
            if not self._is_operator:
                raise RequestRefused(codes.ACCESS_DENIED, OPERATORS_ONLY)
            return await _operate(self._usable(self.shards.get(question.shard)), question)
        if isinstance(question, core.CollectGarbage):
            # Runs once for the installation; other owners have nothing to do.
            self._require_any()
            if self.shards.first is not None:
                self.shards.first.retention.ask(question.kind)
            return core.Done(question.n)
        if isinstance(question, core.GetIdentity | core.AcknowledgeIdentity):
            return await _ask_about_a_contact(self._of(question.wa_id), question)
        if isinstance(question, core.MarkRead):
            await self._of(question.sender).sending.read_marks.mark(question)
            return core.Done(question.n)
        if isinstance(question, core.GroupQuestion):
            return await self._of("").groups.requests.answer(question)
        if isinstance(question, core.CheckContacts):
            contacts = await self._of(question.of).peers.contacts.check(
                question.inputs,
                wait=question.wait,
                force=question.force_check,
                request_id=question.request_id,
            )
            return core.Contacts(question.n, contacts)
        raise RequestRefused(codes.INTERNAL_ERROR, f"unknown question {type(question).__name__}")

    def _of(self, recipient: str) -> Shard:
        """Return the shard of a recipient, or the first one for an empty recipient. Raises `RequestRefused` if it
        cannot work now.
        """
        shard = self._usable(self.shards.of(recipient) if recipient else self.shards.first)
        if shard.link.is_refused:
            raise _NotLookedUp(codes.NOT_READY, ELSEWHERE, retry_after=5)
        return shard

    def _usable(self, shard: Shard | None) -> Shard:
        if shard is None:
            raise self._not_owner()
        if shard.context.journal.is_stalled:
            # A request accepted now could not be answered before the caller's timeout, and would be carried out anyway.
            raise _NotLookedUp(codes.NOT_READY, "the database does not answer", retry_after=1)
        return shard

    def _require_any(self) -> None:
        if not len(self.shards):
            raise self._not_owner()

    def _not_owner(self) -> _NotLookedUp:
        if self._waits_for_code():
            return _NotLookedUp(codes.NOT_READY, UNREGISTERED, retry_after=5)
        return _NotLookedUp(codes.NOT_PRIMARY_COREAPP, "this Coreapp does not own the shard", retry_after=1)

    async def _health(self, n: int) -> core.Health:
        if not len(self.shards):
            status = "unregistered" if self._waits_for_code() else "disconnected"
            return core.Health(n, status, self.node)
        status = "connected" if all(shard.link.connected for shard in self.shards) else "connecting"
        away = await self.databases.away() if self.databases is not None else []
        if away:
            status = "disconnected"
        is_elsewhere = any(shard.link.is_refused for shard in self.shards)
        if is_elsewhere:
            status = "unregistered"
        dropped = sum(shard.webhook.admission.dropped for shard in self.shards)
        return core.Health(n, status, self.node, self.shards.numbers, dropped, away, is_elsewhere)

    def _waits_for_code(self) -> bool:
        return self.requests is not None and self.requests.waits_for_code


async def _operate(shard: Shard, question: _OPERATIONS) -> core.Answer:
    """Carry out an operator's request about the queues."""
    if isinstance(question, core.PurgeJobs):
        found = await shard.accepting.purge.purge(question.ids, question.by, question.choice, question.statuses)
        return core.Purged(question.n, found.deleted, found.stay)
    if isinstance(question, core.ReplayCallbacks):
        return core.Replayed(question.n, await shard.webhook.dead_letters.replay(question.seqs, question.by))
    purged = await shard.webhook.purge.purge(question.seqs, question.by, question.choice, question.statuses)
    return core.Purged(question.n, purged.deleted, purged.changed)


_ABOUT_THE_NUMBER = (core.RequestCode, core.VerifyCode, core.ExportKeys, core.RestoreKeys)


async def _ask_about_a_contact(shard: Shard, question: core.GetIdentity | core.AcknowledgeIdentity) -> core.Answer:
    if isinstance(question, core.GetIdentity):
        identity = await shard.peers.identity_requests.describe(question.wa_id)
        return core.Identity(question.n, text_of(identity.hash), identity.created_at, identity.acknowledged)
    await shard.peers.identity_requests.acknowledge(question.wa_id, question.hash)
    await shard.groups.lost_keys.give_again(question.wa_id)
    return core.Done(question.n)


async def _ask_about_the_number(requests: AccountRequests, question: Any) -> core.Answer:
    if isinstance(question, core.ExportKeys):
        return core.Exported(question.n, await requests.export_keys(question.account, question.password))
    if isinstance(question, core.RequestCode):
        await requests.request_code(question.account, question.pin)
    elif isinstance(question, core.VerifyCode):
        await requests.verify(question.account, question.code)
    else:
        await requests.restore_keys(question.account, question.password, question.data)
    return core.Done(question.n)


def _as_known(question: Any, refused: core.Refused) -> core.Refused:
    """Mark the refusal of a repeated request as unknown: an earlier attempt may have been carried out."""
    refused.unknown = isinstance(question, core.AcceptMessage) and question.repeated
    return refused


def _named(question: Any) -> dict[str, str]:
    """Return the log fields of a request: its type and its request id."""
    return {"question": type(question).__name__, "request_id": getattr(question, "request_id", "")}
