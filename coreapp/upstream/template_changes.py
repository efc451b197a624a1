"""Changes of the templates of the WABA that a client of v1 or an operator has requested."""

from __future__ import annotations

import dataclasses
import logging
import re
import urllib.parse
from typing import Annotated

import msgspec
from prometheus_client import Counter

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.graph_api.client import GraphClient
from coreapp.upstream.change_calls import (
    NOT_OPENED,
    ChangeCalls,
    ChangeEffect,
    ChangeUnfinished,
    CloudSuccess,
    Work,
)
from coreapp.upstream.templates import (
    FIELDS,
    TemplateMirror,
    WabaTemplate,
    fetch_all,
    fetch_namespace,
    keep,
    row_of,
)
from tidings.storage.business import numbers, templates
from tidings.wire import codes, core

log = logging.getLogger(__name__)

CHANGES = Counter("tidings_cloud_template_changes_total", "Changes of templates in the WABA, by result", ["result"])

AT_ONCE = 8  # changes of a number at the same time; further ones are refused

_WORDS = {
    ChangeEffect.UNKNOWN: "whether the WABA has changed the template is unknown; the list of templates will show it",
    ChangeEffect.MADE: "the WABA has changed the template; the list of templates will show it",
}


class _Created(msgspec.Struct):
    id: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,20}\Z")]


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
            await self._try(change, ChangeCalls(self.client, access, _WORDS))
        except RequestRefused as refused:
            log.warning("upstream.template_not_changed", extra={**words, "error": str(refused)})
            raise
        finally:
            self._running -= 1
        CHANGES.labels("made").inc()
        log.info("upstream.template_changed", extra=words)

    async def _try(self, change: core.ChangeTemplate, calls: ChangeCalls) -> None:
        try:
            await calls.complete(self.context, lambda: self._make(change, calls))
        except RequestRefused as refused:
            CHANGES.labels("failed" if isinstance(refused, ChangeUnfinished) else "refused").inc()
            if calls.effect is not ChangeEffect.NONE:
                self.mirror.wake()
            raise
        if change.action == core.DELETE_TEMPLATE:
            # A template that messages still use stays for a while, with another status.
            self.mirror.wake()

    async def _make(self, change: core.ChangeTemplate, calls: ChangeCalls) -> Work:
        """Change the WABA. Returns the work that changes the mirrored templates likewise."""
        account, language, waba = change.account, change.language, calls.access.upstream.waba_id
        owner = await self.context.database.query(lambda connection: numbers.find_waba_owner(connection, account))
        if change.action == core.DELETE_TEMPLATE:
            query = {"name": change.name}
            if language:
                query["hsm_id"] = await _find_id(calls, change)
            await calls.delete(f"{waba}/message_templates?{urllib.parse.urlencode(query)}")
            return lambda connection: templates.delete_templates(connection, owner, change.name, language or None)
        namespace = await fetch_namespace(calls.fetch, waba)
        if change.action == core.CREATE_TEMPLATE:
            made = await calls.post(f"{waba}/message_templates", change.definition, _Created)
            template_id: str = made.id
        else:
            template_id = await _find_id(calls, change)
            await calls.post(template_id, change.definition, CloudSuccess)
        found = await calls.fetch(f"{template_id}?fields={FIELDS}", WabaTemplate)
        row = row_of(found, owner, namespace, self.context.now())
        return lambda connection: keep(connection, owner, [row])


async def _find_id(calls: ChangeCalls, change: core.ChangeTemplate) -> str:
    """Return the id of the template in the Cloud API. Raises `RequestRefused` if the WABA does not have it."""
    # The filter is for parts of names.
    for found in await fetch_all(calls.fetch, calls.access.upstream.waba_id, name=change.name):
        if (found.name, found.language) == (change.name, change.language) and re.fullmatch("[0-9]{1,20}", found.id):
            return found.id
    raise RequestRefused(
        codes.NOT_FOUND, f"name: the WABA has no template {change.name[:100]} in {change.language[:20]}"
    )
