"""Creating, listing and deleting templates, and those of the account in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from tidings.runtime.clock import Clock
from tidings.storage import outages
from tidings.storage.business import templates
from tidings.storage.business.templates import Template
from tidings.storage.database import Connection, Database
from tidings.wire.codes import ALREADY_EXISTS, NOT_FOUND
from webapp.errors import InvalidRequest
from webapp.templates import importing
from webapp.templates.importing import Import
from webapp.templates.schemas import Definition
from webapp.tokens import Caller

log = logging.getLogger(__name__)


# Of one name, by language, each language's by namespace.
Languages = Mapping[str, Mapping[str, Template]]


class Templates:
    """The templates of one account, all of them in memory: what other processes change is seen within a second.

    A name that is not in memory is looked up at once, so a new template can be used as soon as it is made.
    """

    def __init__(self, database: Database, account: str, clock: Clock) -> None:
        self._database = database
        self._account = account
        self._clock = clock
        self._version = -1
        self._by_name: Mapping[str, Languages] = {}
        self._loading = asyncio.Lock()

    async def find(self, name: str, language: str, namespace: str | None) -> tuple[Sequence[Template], Sequence[str]]:
        """The templates of this name in this language, one for each namespace, and all languages that there are.

        namespace: the one that is wanted, None for any.
        """
        found = self._by_name.get(name, {})
        here = found.get(language, {})
        if not here or (namespace is not None and namespace not in here):
            await self.run_once()
            found = self._by_name.get(name, {})
        return list(found.get(language, {}).values()), list(found)

    async def list(self, caller: Caller) -> Sequence[Template]:
        async with self._database.reading() as connection:
            return await templates.list_templates(connection, caller.account)

    async def create(self, caller: Caller, definition: Definition) -> Template:
        """Raises `InvalidRequest` when the namespace has one of that name in that language already."""
        row = definition.row(caller.account, int(self._clock.now() * 1000))
        if not await self._database.persist(lambda connection: templates.add_template(connection, row), patience=5.0):
            details = f"name: there is a template {row.name} in {row.language} already"
            raise InvalidRequest.because(ALREADY_EXISTS, details)
        await self._refresh()
        log.info(
            "template.created", extra={"template": row.name, "language": row.language, "username": caller.username}
        )
        return row

    async def import_all(self, caller: Caller, wanted: Import) -> Sequence[Template]:
        """All of an export's templates, in its order but for those that were there as they are, which come last.

        Raises `InvalidRequest` that names each one that cannot be kept; then none is.
        """
        now = int(self._clock.now() * 1000)

        async def work(connection: Connection) -> importing.Plan:
            await templates.lock(connection, caller.account)
            existing = await templates.list_templates(connection, caller.account)
            found = importing.plan(wanted, caller.account, existing, now)
            if not found.refused:
                await templates.put_templates(connection, caller.account, found.keep)
            return found

        done = await self._database.persist(work, patience=5.0)
        done.require_all()
        await self._refresh()
        log.info("templates.imported", extra={"templates": len(done.keep), "username": caller.username})
        return [*done.keep, *done.unchanged]

    async def delete(self, caller: Caller, name: str, language: str | None, namespace: str | None) -> None:
        """In one language or in all, in one namespace or in all. Raises `InvalidRequest` when there is none."""
        deleted = await self._database.persist(
            lambda connection: templates.delete_templates(connection, caller.account, name, language, namespace),
            patience=5.0,
        )
        if not deleted:
            raise InvalidRequest.because(NOT_FOUND, f"name: there is no template {name[:100]}")
        await self._refresh()
        log.info("template.deleted", extra={"template": name, "rows": deleted, "username": caller.username})

    async def _refresh(self) -> None:
        """Load a change that is committed. While the database is away this is left to the next poll."""
        try:
            await self.run_once()
        except Exception as error:
            if not outages.is_outage(error):
                raise
            log.warning("templates.not_read", extra={"error": outages.brief(error)})

    async def run_once(self) -> None:
        """Look whether they have changed, and read them if so."""
        # One at a time: an older reading must not replace a newer one.
        async with self._loading, self._database.reading() as connection:
            version = await templates.find_version(connection, self._account)
            if version == self._version:
                return
            by_name: dict[str, dict[str, dict[str, Template]]] = {}
            for template in await templates.list_templates(connection, self._account):
                by_name.setdefault(template.name, {}).setdefault(template.language, {})[template.namespace] = template
            self._by_name, self._version = by_name, version
