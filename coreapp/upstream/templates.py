"""Templates of the WABA, mirrored into ours, so that a message is checked against them before it is accepted."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.graph_api.client import CloudResponse, GraphClient, NotPosted, ResponseMissing
from coreapp.upstream import outcomes
from coreapp.upstream_access import UpstreamAccess
from tidings.aio.service import Wakeup
from tidings.storage import outages
from tidings.storage.business import numbers, templates
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Connection
from tidings.wire.decoding import UNREADABLE

log = logging.getLogger(__name__)

MIRRORED = Counter("tidings_cloud_template_reads_total", "Reads of the WABA's templates, by result", ["result"])

INTERVAL = 600.0  # seconds between two reads
RETRY_SECONDS = 30.0  # seconds after a failed read
PAGE = 50  # templates per call
MAX_PAGES = 200
PAGE_BYTES = 4 * 1024 * 1024  # bytes of one response
FIELDS = "name,language,status,category,parameter_format,components,rejected_reason,quality_score"

# Gets a path of the Cloud API, and returns its object of the given type.
Fetch = Callable[[str, type[Any]], Awaitable[Any]]


class MirrorFailed(Exception):
    """The templates cannot be read now. Nothing was changed; try again later."""


# Strings of at most as many characters as the columns of ours have.
Text16 = Annotated[str, msgspec.Meta(max_length=16)]
Text32 = Annotated[str, msgspec.Meta(max_length=32)]


class _Waba(msgspec.Struct):
    message_template_namespace: Annotated[str, msgspec.Meta(max_length=64)] = ""


class _Quality(msgspec.Struct):
    score: Text16 = ""


class WabaTemplate(msgspec.Struct):
    """Template in the Cloud API."""

    name: Annotated[str, msgspec.Meta(max_length=512)]
    language: Text16
    status: Text16
    category: Text32
    components: list[dict[str, Any]] = []
    parameter_format: Text16 = templates.POSITIONAL
    rejected_reason: Text32 | None = None
    quality_score: _Quality | None = None
    id: str = ""


class _Cursors(msgspec.Struct):
    after: str = ""


class _Paging(msgspec.Struct):
    cursors: _Cursors | None = None
    next: str = ""


class _Page(msgspec.Struct):
    data: list[WabaTemplate]
    paging: _Paging | None = None


def row_of(found: WabaTemplate, account: str, namespace: str, now: int) -> TemplateRow:
    """Return a template of the WABA as ours.

    now: Unix milliseconds
    """
    reason = found.rejected_reason
    return TemplateRow(
        account,
        found.name,
        found.language,
        namespace,
        found.category.upper(),
        found.status.upper(),
        found.components,
        now,
        found.parameter_format.upper(),
        rejected_reason=reason if reason not in (None, "", templates.NO_REASON) else None,
        quality=found.quality_score.score if found.quality_score is not None else None,
    )


def _is_same(stored: TemplateRow, fresh: TemplateRow) -> bool:
    ours = ("account", "key", "category", "status", "parameter_format", "rejected_reason", "quality")
    # Set while the number's templates were its own. The Cloud API ends reviews itself.
    timers = ("review_at", "next_category", "category_at")
    same = all(getattr(stored, name) == getattr(fresh, name) for name in (*ours, *timers))
    return same and templates.without_examples(stored.components) == templates.without_examples(fresh.components)


async def replace(connection: Connection, account: str, fresh: Sequence[TemplateRow], version: int) -> int | None:
    """Replace the templates of an account by these. Returns the number of changed, new and deleted ones.

    Does nothing and returns None if they were changed since they had this version: `fresh` may not have that change.
    """
    if await templates.lock(connection, account) != version:
        return None
    wanted = {row.key for row in fresh}
    gone = [row for row in await templates.list_templates(connection, account) if row.key not in wanted]
    changed = await keep(connection, account, fresh)
    for row in gone:
        await templates.delete_templates(connection, account, row.name, row.language, row.namespace)
    return changed + len(gone)


async def keep(connection: Connection, account: str, fresh: Sequence[TemplateRow]) -> int:
    """Add templates of an account, or replace those with the same keys. Returns the number of changed and new ones."""
    await templates.lock(connection, account)
    stored = {row.key: row for row in await templates.list_templates(connection, account)}
    changed: list[TemplateRow] = []
    # Of several with the same key the last one counts.
    for key, row in {row.key: row for row in fresh}.items():
        before = stored.get(key)
        if before is None:
            changed.append(row)
        elif not _is_same(before, row):
            changed.append(dataclasses.replace(row, created_at=before.created_at))
    await templates.put_templates(connection, account, changed)
    return len(changed)


async def read(client: GraphClient, access: UpstreamAccess, account: str, now: int) -> Sequence[TemplateRow]:
    """Read all templates of the WABA. Raises `MirrorFailed`.

    account: number whose templates they become
    now: Unix milliseconds
    """
    waba, fetch = access.upstream.waba_id, functools.partial(get_object, client, access)
    namespace = await fetch_namespace(fetch, waba)
    return [row_of(each, account, namespace, now) for each in await fetch_all(fetch, waba)]


async def fetch_namespace(fetch: Fetch, waba_id: str) -> str:
    """Return the namespace of the templates of a WABA. Raises the errors of `fetch`."""
    described = await fetch(f"{waba_id}?fields=message_template_namespace", _Waba)
    namespace: str = described.message_template_namespace
    return namespace


async def fetch_all(fetch: Fetch, waba_id: str, **filters: str) -> Sequence[WabaTemplate]:
    """Return the templates of a WABA that pass the filters. Raises the errors of `fetch`, and `MirrorFailed`."""
    found: list[WabaTemplate] = []
    after = ""
    for _ in range(MAX_PAGES):
        query: Mapping[str, str] = {
            "fields": FIELDS,
            "limit": str(PAGE),
            **filters,
            **({"after": after} if after else {}),
        }
        page = await fetch(f"{waba_id}/message_templates?{urllib.parse.urlencode(query)}", _Page)
        found += page.data
        # The URL in `next` is not called: another host would get the token.
        has_more = page.paging is not None and bool(page.paging.next)
        after = page.paging.cursors.after if page.paging is not None and page.paging.cursors is not None else ""
        if not has_more or not after:
            return found
    raise MirrorFailed(f"the WABA has more than {MAX_PAGES * PAGE} templates")


async def get_object(client: GraphClient, access: UpstreamAccess, path: str, kind: type[Any]) -> Any:
    """Get a path of the Cloud API. Returns its object of the given type. Raises `MirrorFailed`."""
    try:
        response = await client.get(access.url(path), access.token, limit=PAGE_BYTES)
    except (NotPosted, ResponseMissing) as error:
        raise MirrorFailed(str(error)) from error
    if response.status != 200:
        found = outcomes.find_error(response.content)
        raise MirrorFailed(found.shown if found is not None else f"HTTP {response.status}")
    return decode(response, kind)


def decode(response: CloudResponse, kind: type[Any]) -> Any:
    """Return the object in a response. Raises `MirrorFailed`."""
    try:
        return msgspec.json.decode(response.content, type=kind)
    except UNREADABLE as error:
        raise MirrorFailed(f"not a response of the Cloud API: {error}") from error


@dataclasses.dataclass(eq=False, repr=False)
class TemplateMirror:
    """Service of a number's first shard that mirrors the templates every 10 minutes, and when the Cloud API reports a
    change.
    """

    name = "template-mirror"

    context: ShardContext
    client: GraphClient

    def __post_init__(self) -> None:
        self._wakeup = Wakeup()

    def wake(self) -> None:
        """Read the templates soon."""
        self._wakeup.wake()

    async def run(self, stop: asyncio.Event) -> None:
        with self._wakeup.woken_by(stop):
            while not stop.is_set():
                await self._wakeup.wait(INTERVAL if await self.run_once() else RETRY_SECONDS)

    async def run_once(self) -> bool:
        """Read the templates once. Returns whether that succeeded."""
        access, account = self.context.config.upstream, self.context.account
        if access is None or not access.token:
            return False
        try:
            async with self.context.database.reading() as connection:
                owner = await numbers.find_waba_owner(connection, account)
                version = await templates.find_version(connection, owner)
            fresh = await read(self.client, access, owner, self.context.now())
            count = await self.context.persist(
                lambda connection: replace(connection, owner, fresh, version), retry_seconds=10.0
            )
        except MirrorFailed as error:
            MIRRORED.labels("failed").inc()
            log.warning("upstream.templates_not_read", extra={"number": account, "error": str(error)})
            return False
        except Exception as error:
            if not outages.is_outage(error):
                raise
            log.warning("upstream.templates_not_stored", extra={"number": account, "error": outages.brief(error)})
            return False
        MIRRORED.labels("read").inc()
        if count is None:
            return False
        if count:
            log.info("upstream.templates", extra={"number": account, "templates": len(fresh), "changed": count})
        return True
