"""Changes of the templates of the WABA that a client of v1 or an operator has requested."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
import urllib.parse
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.graph_api.client import AnswerMissing, CloudResponse, GraphClient, NotPosted
from coreapp.upstream import template_errors
from coreapp.upstream.templates import (
    FIELDS,
    PAGE_BYTES,
    MirrorFailed,
    TemplateMirror,
    WabaTemplate,
    decode,
    fetch_all,
    fetch_namespace,
    keep,
    row_of,
)
from coreapp.upstream_access import UpstreamAccess
from tidings.storage import outages
from tidings.storage.business import numbers, templates
from tidings.storage.business.shards import LeaseLost
from tidings.storage.database import Connection
from tidings.wire import codes, core

log = logging.getLogger(__name__)

CHANGES = Counter("tidings_cloud_template_changes_total", "Changes of templates in the WABA, by result", ["result"])

CHANGE_SECONDS = 6.0  # for all calls of one change, so that v1 answers within 9 s whatever the Cloud API does
COMMIT_SECONDS = 2.0  # for its commit while the database is away
AT_ONCE = 8  # changes of a number at the same time; further ones are refused
RETRY_SECONDS = 5  # `Retry-After` of a change that may be repeated

NOT_OPENED = "the number's access token for the Cloud API cannot be opened: run `tidings doctor`"
# Known state of a change that failed.
UNCHANGED = "nothing was changed"
UNKNOWN = "whether the WABA has changed the template is unknown; the list of templates will show it"
CHANGED = "the WABA has changed the template; the list of templates will show it"

Work = Callable[[Connection], Awaitable[int]]


class _Created(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}\Z")]


class _Success(msgspec.Struct):
    success: bool


@dataclasses.dataclass(eq=False, repr=False)
class _Calls:
    """Calls of one change, with what is known about it."""

    client: GraphClient
    access: UpstreamAccess
    known: str = UNCHANGED  # also `UNKNOWN` or `CHANGED`

    @property
    def waba(self) -> str:
        return self.access.upstream.waba_id

    async def fetch(self, path: str, kind: type[Any]) -> Any:
        """Get an object. Raises `RequestRefused`, `MirrorFailed`, `NotPosted` and `AnswerMissing`."""
        return _object(await self.client.get(self.access.url(path), self.access.token, limit=PAGE_BYTES), kind)

    async def post(self, path: str, body: bytes, kind: type[Any]) -> Any:
        """Make the change by a post. Raises the errors of `fetch`."""
        return await self._make(self.client.post(self.access.url(path), self.access.token, body), kind)

    async def delete(self, path: str) -> None:
        """Make the change by a deletion. Raises the errors of `fetch`."""
        await self._make(self.client.delete(self.access.url(path), self.access.token), _Success)

    async def _make(self, call: Awaitable[CloudResponse], kind: type[Any]) -> Any:
        self.known = UNKNOWN
        try:
            answer = await call
        except NotPosted:
            self.known = UNCHANGED
            raise
        try:
            made = _object(answer, kind)
        except RequestRefused as refused:
            if answer.status >= 500:
                raise RequestRefused(refused.code, f"{refused.details}: {UNKNOWN}", refused.retry_after) from None
            self.known = UNCHANGED
            raise
        if isinstance(made, _Success) and not made.success:
            self.known = UNCHANGED
            raise RequestRefused(codes.GENERIC_ERROR, "the Cloud API refuses without a reason")
        self.known = CHANGED
        return made


def _object(answer: CloudResponse, kind: type[Any]) -> Any:
    """Return the object in a response. Raises `RequestRefused` for an error of the Cloud API, else `MirrorFailed`."""
    if answer.status != 200:
        refused = template_errors.find_refusal(answer)
        raise refused or MirrorFailed(f"HTTP {answer.status} without an error of the Cloud API")
    return decode(answer, kind)


@dataclasses.dataclass(eq=False, repr=False)
class TemplateChanges:
    """Creates, edits and deletes templates in the WABA of a number, and then in those that mirror them."""

    context: ShardContext
    client: GraphClient
    mirror: TemplateMirror

    def __post_init__(self) -> None:
        self._running = 0

    async def carry_out(self, change: core.ChangeTemplate) -> None:
        """Make a change. It is committed here as well when this returns. Raises `RequestRefused`."""
        access = self.context.config.upstream
        if access is None or not access.token:
            raise RequestRefused(codes.GENERIC_ERROR, NOT_OPENED)
        if self._running >= AT_ONCE:
            raise RequestRefused(codes.OVERLOADED, "too many changes of templates are in progress", 1)
        self._running += 1
        words = {"number": change.account, "action": change.action, "template": change.name}
        try:
            await self._try(change, _Calls(self.client, access))
        except RequestRefused as refused:
            log.warning("upstream.template_not_changed", extra={**words, "error": str(refused)})
            raise
        finally:
            self._running -= 1
        CHANGES.labels("made").inc()
        log.info("upstream.template_changed", extra=words)

    async def _try(self, change: core.ChangeTemplate, calls: _Calls) -> None:
        try:
            async with asyncio.timeout(CHANGE_SECONDS):
                work = await self._make(change, calls)
            await self.context.persist(work, patience=COMMIT_SECONDS)
        except RequestRefused as refused:
            if calls.known != CHANGED:
                CHANGES.labels("refused").inc()
                if calls.known == UNKNOWN:
                    self.mirror.kick()
                raise
            reason = refused.details
        except TimeoutError:
            reason = f"the Cloud API does not answer within {CHANGE_SECONDS:g} s"
        except (NotPosted, AnswerMissing, MirrorFailed) as error:
            reason = f"the Cloud API: {error}"
        except LeaseLost:
            reason = "this Coreapp has just lost its shard"
        except Exception as error:
            if not outages.is_outage(error):
                raise
            reason = f"the database: {outages.brief(error)}"
        else:
            if change.action == core.DELETE_TEMPLATE:
                # A template that messages still use stays for a while, with another status.
                self.mirror.kick()
            return
        CHANGES.labels("failed").inc()
        if calls.known != UNCHANGED:
            self.mirror.kick()
        raise RequestRefused(codes.NOT_READY, f"{reason}: {calls.known}", RETRY_SECONDS)

    async def _make(self, change: core.ChangeTemplate, calls: _Calls) -> Work:
        """Change the WABA. Returns the work that changes the mirrored templates likewise."""
        account, language = change.account, change.language
        owner = await self.context.database.query(lambda connection: numbers.find_waba_owner(connection, account))
        if change.action == core.DELETE_TEMPLATE:
            query = {"name": change.name}
            if language:
                query["hsm_id"] = await _find_id(calls, change)
            await calls.delete(f"{calls.waba}/message_templates?{urllib.parse.urlencode(query)}")
            return lambda connection: templates.delete_templates(connection, owner, change.name, language or None)
        namespace = await fetch_namespace(calls.fetch, calls.waba)
        if change.action == core.CREATE_TEMPLATE:
            made = await calls.post(f"{calls.waba}/message_templates", change.definition, _Created)
            template_id: str = made.id
        else:
            template_id = await _find_id(calls, change)
            await calls.post(template_id, change.definition, _Success)
        found = await calls.fetch(f"{template_id}?fields={FIELDS}", WabaTemplate)
        row = row_of(found, owner, namespace, self.context.now())
        return lambda connection: keep(connection, owner, [row])


async def _find_id(calls: _Calls, change: core.ChangeTemplate) -> str:
    """Return the id of the template in the Cloud API. Raises `RequestRefused` if the WABA does not have it."""
    # The filter is for parts of names.
    for found in await fetch_all(calls.fetch, calls.waba, name=change.name):
        if (found.name, found.language) == (change.name, change.language) and re.fullmatch("[0-9]{1,20}", found.id):
            return found.id
    raise RequestRefused(
        codes.NOT_FOUND, f"name: the WABA has no template {change.name[:100]} in {change.language[:20]}"
    )
