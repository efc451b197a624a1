"""Templates of the WABA, mirrored into ours, so that a message is checked against them before it is accepted."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.graph_api.client import AnswerMissing, CloudResponse, GraphClient, NotPosted
from coreapp.upstream import outcomes
from coreapp.upstream_access import UpstreamAccess
from tidings.aio.service import Wakeup
from tidings.storage import outages
from tidings.storage.business import numbers, templates
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Connection

log = logging.getLogger(__name__)

MIRRORED = Counter("tidings_cloud_template_reads_total", "Reads of the WABA's templates, by result", ["result"])

INTERVAL = 600.0  # seconds between two reads
RETRY_SECONDS = 30.0  # seconds after a failed read
PAGE = 50  # templates per call
MAX_PAGES = 200
PAGE_BYTES = 4 * 1024 * 1024  # of one response
_FIELDS = "name,language,status,category,parameter_format,components,rejected_reason,quality_score"


class MirrorFailed(Exception):
    """The templates cannot be read now. Nothing was changed; try again later."""


class _Waba(msgspec.Struct):
    message_template_namespace: str = ""


class _Quality(msgspec.Struct):
    score: str = ""


class _Template(msgspec.Struct):
    name: str
    language: str
    status: str
    category: str
    components: list[dict[str, Any]] = []
    parameter_format: str = templates.POSITIONAL
    rejected_reason: str | None = None
    quality_score: _Quality | None = None


class _Cursors(msgspec.Struct):
    after: str = ""


class _Paging(msgspec.Struct):
    cursors: _Cursors | None = None
    next: str = ""


class _Page(msgspec.Struct):
    data: list[_Template]
    paging: _Paging | None = None


def row_of(found: _Template, account: str, namespace: str, now: int) -> TemplateRow:
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
    ours = ("account", "key", "category", "status", "components", "parameter_format", "rejected_reason", "quality")
    return all(getattr(stored, name) == getattr(fresh, name) for name in ours)


async def replace(connection: Connection, account: str, fresh: Sequence[TemplateRow]) -> int:
    """Replace the templates of an account by these. Returns the number of changed, new and deleted ones."""
    await templates.lock(connection, account)
    stored = {row.key: row for row in await templates.list_templates(connection, account)}
    wanted = {row.key: row for row in fresh}
    changed = [
        dataclasses.replace(row, created_at=stored[key].created_at) if key in stored else row
        for key, row in wanted.items()
        if key not in stored or not _is_same(stored[key], row)
    ]
    await templates.put_templates(connection, account, changed)
    gone = [row for key, row in stored.items() if key not in wanted]
    for row in gone:
        await templates.delete_templates(connection, account, row.name, row.language, row.namespace)
    return len(changed) + len(gone)


async def read(client: GraphClient, access: UpstreamAccess, account: str, now: int) -> Sequence[TemplateRow]:
    """Read all templates of the WABA. Raises `MirrorFailed`.

    account: number whose templates they become
    now: Unix milliseconds
    """
    waba = access.upstream.waba_id
    described = _decoded(await _get(client, access, f"{waba}?fields=message_template_namespace"), _Waba)
    found: list[TemplateRow] = []
    after = ""
    for _ in range(MAX_PAGES):
        query: Mapping[str, str] = {"fields": _FIELDS, "limit": str(PAGE), **({"after": after} if after else {})}
        path = f"{waba}/message_templates?{urllib.parse.urlencode(query)}"
        page = _decoded(await _get(client, access, path), _Page)
        found += [row_of(each, account, described.message_template_namespace, now) for each in page.data]
        # The URL in `next` is not called: another host would get the token.
        has_more = page.paging is not None and bool(page.paging.next)
        after = page.paging.cursors.after if page.paging is not None and page.paging.cursors is not None else ""
        if not has_more or not after:
            return found
    raise MirrorFailed(f"the WABA has more than {MAX_PAGES * PAGE} templates")


async def _get(client: GraphClient, access: UpstreamAccess, path: str) -> CloudResponse:
    try:
        answer = await client.get(access.url(path), access.token, limit=PAGE_BYTES)
    except (NotPosted, AnswerMissing) as error:
        raise MirrorFailed(str(error)) from error
    if answer.status != 200:
        found = outcomes.find_error(answer.content)
        raise MirrorFailed(found.shown if found is not None else f"HTTP {answer.status}")
    return answer


def _decoded(answer: CloudResponse, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MirrorFailed(f"not an answer of the Cloud API: {error}") from error


@dataclasses.dataclass(eq=False, repr=False)
class TemplateMirror:
    """Service of a number's first shard that mirrors the templates every 10 minutes, and when the Cloud API reports a
    change.
    """

    name = "template-mirror"

    context: ShardContext
    client: GraphClient

    def __post_init__(self) -> None:
        self._look = Wakeup()

    def kick(self) -> None:
        """Read the templates soon."""
        self._look.kick()

    async def run(self, stop: asyncio.Event) -> None:
        with self._look.kicked_by(stop):
            while not stop.is_set():
                await self._look.wait(INTERVAL if await self.run_once() else RETRY_SECONDS)

    async def run_once(self) -> bool:
        """Read the templates once. Returns whether that succeeded."""
        access, account = self.context.config.upstream, self.context.account
        if access is None or not access.token:
            return False
        try:
            async with self.context.database.reading() as connection:
                owner = await numbers.find_waba_owner(connection, account)
            fresh = await read(self.client, access, owner, self.context.now())
            count = await self.context.persist(lambda connection: replace(connection, owner, fresh), patience=10.0)
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
        if count:
            log.info("upstream.templates", extra={"number": account, "templates": len(fresh), "changed": count})
        return True
