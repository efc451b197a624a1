"""Changes of templates of numbers that send through the real Cloud API: made there, by the Coreapp of the number."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import msgspec

from tidings.storage.business import upstreams
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Database
from tidings.wire import core
from tidings.wire.codes import ACCESS_DENIED
from webapp.api.templates.components import AUTHENTICATION
from webapp.api.templates.schemas import DEFINED, Definition
from webapp.coreapps.interfaces import PrimaryCoreapps
from webapp.http.errors import InvalidRequest

MIRRORED = (
    "the number's templates are those of its WABA at the Cloud API, which decides about them: they can be created, "
    "edited and deleted here, one by one"
)
_TTL = "message_send_ttl_seconds"


class UpstreamChanges:
    """Requests to the owners of the first shards of numbers that send through the Cloud API."""

    def __init__(self, database: Database, coreapps: PrimaryCoreapps) -> None:
        self._database = database
        self._coreapps = coreapps

    async def concerns(self, account: str) -> bool:
        """Return whether the templates of a number are those of its WABA at the Cloud API."""
        return await self._database.query(lambda connection: upstreams.exists(connection, account), retry_seconds=5.0)

    async def create(self, account: str, definition: Definition, ttl: int | None) -> None:
        """Create a template in the WABA. Raises the errors of the Coreapp link.

        ttl: seconds that its messages live, -1 for the longest time; None for the default
        """
        await self._change(create(account, definition, ttl))

    async def edit(self, account: str, stored: TemplateRow, wanted: TemplateRow, ttl: int | None) -> None:
        """Edit a template in the WABA. Raises the errors of the Coreapp link, and `InvalidRequest` for a change of
        another property than those that the Cloud API lets clients edit.

        ttl: new time to live of its messages, as for `create`; None for the present one
        """
        change = edit(account, stored, wanted, ttl)
        if change is None:
            raise InvalidRequest.because(ACCESS_DENIED, MIRRORED)
        await self._change(change)

    async def delete(self, account: str, name: str, language: str | None) -> None:
        """Delete a template in the WABA, in one or all languages. Raises the errors of the Coreapp link."""
        await self._change(delete(account, name, language))

    async def _change(self, change: core.ChangeTemplate) -> None:
        make = functools.partial(msgspec.structs.replace, change)
        await self._coreapps.of(change.account).call_primary(lambda n: make(n=n), core.Done)


def create(account: str, definition: Definition, ttl: int | None = None) -> core.ChangeTemplate:
    """Return the request that creates a template. The WABA gives it a status and its namespace."""
    document = definition.model_dump(include=set(DEFINED), exclude_none=True)
    if ttl is not None:
        document[_TTL] = ttl
    return _request(account, core.CREATE_TEMPLATE, definition.name, definition.language, document)


def edit(account: str, stored: TemplateRow, wanted: TemplateRow, ttl: int | None = None) -> core.ChangeTemplate | None:
    """Return the request that makes a template as wanted; None if that changes neither category, components nor the
    time to live of messages.
    """
    document: dict[str, Any] = {} if ttl is None else {_TTL: ttl}
    if wanted.category != stored.category:
        document["category"] = wanted.category
    if wanted.components != stored.components:
        document["components"] = [_without_fixed_text(part, wanted.category) for part in wanted.components]
    return _request(account, core.EDIT_TEMPLATE, stored.name, stored.language, document) if document else None


def delete(account: str, name: str, language: str | None) -> core.ChangeTemplate:
    """Return the request that deletes a template in one or all languages."""
    return core.ChangeTemplate(0, account, core.DELETE_TEMPLATE, name, language or "")


def _request(account: str, action: str, name: str, language: str, document: Mapping[str, Any]) -> core.ChangeTemplate:
    return core.ChangeTemplate(0, account, action, name, language, msgspec.json.encode(document))


def _without_fixed_text(part: Mapping[str, Any], category: str) -> Mapping[str, Any]:
    """Return a component without the text of a one-time password, which the Cloud API sets itself."""
    if category != AUTHENTICATION or part["type"] not in ("BODY", "FOOTER"):
        return part
    return {name: value for name, value in part.items() if name != "text"}
