"""Create, list and delete templates, with a cache of the account's templates."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

from tidings.aio.clock import Clock
from tidings.storage import database_clock, outages
from tidings.storage.business import template_history, template_ttls, templates, upstreams
from tidings.storage.business.templates import APPROVED, Key, TemplateRow
from tidings.storage.database import Connection, Database
from tidings.wire.codes import ACCESS_DENIED, ALREADY_EXISTS, NOT_FOUND, PARAMETER_INVALID, PARAMETER_MISSING
from webapp.api.templates import creation_limits, importing, schemas, ttls
from webapp.api.templates.importing import Import
from webapp.api.templates.review import EditRefused, TemplateReview, redefine
from webapp.api.templates.schemas import Definition
from webapp.api.templates.upstream_changes import MIRRORED, UpstreamChanges
from webapp.auth.tokens import Caller
from webapp.http import bodies
from webapp.http.errors import CoreappUnavailable, InvalidRequest

log = logging.getLogger(__name__)


# Templates of one name: by language, then by namespace.
Languages = Mapping[str, Mapping[str, TemplateRow]]
# Returns a changed template; called with the stored one and the time of the database's clock, Unix milliseconds.
Change = Callable[[TemplateRow, int], TemplateRow]


class Templates:
    """Templates of each WABA that uses them, all cached in memory. Changes by other processes are visible within a
    second.

    The templates of a WABA belong to the number that owns it. A name that is not cached or not approved is looked up at
    once, so that a new template can be used immediately.
    """

    def __init__(
        self,
        database: Database,
        account: str,
        clock: Clock,
        *,
        review: TemplateReview,
        upstream: UpstreamChanges,
        owner_of: Callable[[str], str] = lambda number: number,
    ) -> None:
        """Create the service.

        account: number whose templates are cached from the start; those of others are when they are first used
        review: review that created and edited templates pass through
        upstream: changes of templates of numbers that send through the Cloud API
        owner_of: returns the number that owns the WABA of a number
        """
        self.review = review
        self._database = database
        self._clock = clock
        self._owner_of = owner_of
        self._upstream = upstream
        # By number: version, templates by name, and times to live of messages by id of the template.
        self._cached: dict[str, tuple[int, Mapping[str, Languages], Mapping[str, int]]] = {account: (-1, {}, {})}
        self._upstream_numbers: Set[str] = frozenset()  # numbers that send through the Cloud API
        self._loading = asyncio.Lock()

    async def find(
        self, account: str, name: str, language: str, namespace: str | None
    ) -> tuple[Sequence[TemplateRow], Sequence[str]]:
        """Return the templates of this name and language, one per namespace, and all languages of the name.

        account: number that uses the templates
        namespace: the requested one; `None` for any
        """
        account = self._owner_of(account)
        found = self._of(account).get(name, {})
        here = found.get(language, {})
        named = [template for template in here.values() if namespace in (None, template.namespace)]
        if not any(template.status == APPROVED for template in named):
            await self._load(account)
            found = self._of(account).get(name, {})
        return list(found.get(language, {}).values()), list(found)

    async def list(self, caller: Caller) -> Sequence[TemplateRow]:
        account = self._owner_of(caller.account)
        async with self._database.reading() as connection:
            return await templates.list_templates(connection, account)

    def ttl(self, template: TemplateRow) -> int | None:
        """Return the time to live that a template, which `find` has returned, gives its messages; None for none."""
        cached = self._cached.get(template.account)
        return cached[2].get(ttls.id_of(template)) if cached is not None else None

    def is_mirrored(self, account: str) -> bool:
        """Return whether the templates of a number, which `find` has returned, are those of its WABA at the Cloud
        API.
        """
        return account in self._upstream_numbers

    async def list_ttls(self, caller: Caller) -> Mapping[str, int]:
        """Return the times to live of messages, in seconds, by the Cloud API's id of the template."""
        account = self._owner_of(caller.account)
        async with self._database.reading() as connection:
            return await template_ttls.list_ttls(connection, account)

    async def create(
        self, caller: Caller, definition: Definition, *, ttl: int | None = None, limited: bool = False
    ) -> TemplateRow:
        """Create a template. Without a `status` it passes through the review.

        Raises `InvalidRequest` when one of this name, language and namespace exists. That of a number that sends
        through the Cloud API is created there; this and all other changes then raise the errors of the Coreapp link.

        ttl: seconds that its messages live, -1 for the longest time; None for the default
        limited: whether the limits on creations apply if there is a review; then raises `CreationRefused`
        """
        account = self._owner_of(caller.account)
        if await self._upstream.concerns(caller.account):
            await self._upstream.create(caller.account, definition, ttl)
            made = await self._mirrored(account, definition.name, definition.language)
        else:
            made = await self._add(account, definition, ttl, limited=limited and self.review.is_required)
        log.info(
            "template.created", extra={"template": made.name, "language": made.language, "username": caller.username}
        )
        return made

    async def _add(self, account: str, definition: Definition, ttl: int | None, *, limited: bool) -> TemplateRow:
        row = definition.row(account, self._clock.now_ms())
        made: TemplateRow | None = None

        async def work(connection: Connection) -> TemplateRow | None:
            nonlocal made
            if made is not None and await templates.find_template(connection, made) == made:
                # An earlier attempt has added it.
                return made
            now = await database_clock.read(connection)
            made = row if "status" in definition.model_fields_set else self.review.submit(row, now)
            if not await templates.add_template(connection, made):
                return None
            if limited:
                await creation_limits.admit(connection, made, now)
            await template_ttls.put(connection, account, ttls.id_of(made), ttl)
            return made

        added = await self._database.persist(work, retry_seconds=5.0)
        if added is None:
            details = f"name: a template {row.name} in {row.language} already exists"
            raise InvalidRequest.because(ALREADY_EXISTS, details)
        await self._refresh(account)
        return added

    async def change(self, caller: Caller, key: Key, change: Change, *, ttl: int | None = None) -> TemplateRow | None:
        """Change a template, and return it as it is then; `None` when there is none. Raises the errors of `change`.

        ttl: new time to live of its messages, as for `create`; None for the present one
        """
        if await self._upstream.concerns(caller.account):
            changed = await self._change_upstream(caller, key, change, ttl)
        else:
            changed = await self._change(self._owner_of(caller.account), key, change, ttl)
        if changed is not None:
            log.info(
                "template.changed",
                extra={"template": changed.name, "language": changed.language, "username": caller.username},
            )
        return changed

    async def _change(self, account: str, key: Key, change: Change, ttl: int | None) -> TemplateRow | None:
        made: TemplateRow | None = None

        async def work(connection: Connection) -> TemplateRow | None:
            nonlocal made
            await templates.lock(connection, account)
            existing = await templates.list_templates(connection, account)
            stored = next((template for template in existing if template.key == key), None)
            if stored is None:
                return None
            if made is None or stored != made:
                # No earlier attempt has changed it.
                made = change(stored, await database_clock.read(connection))
            if ttl is not None:
                await template_ttls.put(connection, account, ttls.id_of(made), ttl)
            if made != stored or ttl is not None:
                await templates.put_templates(connection, account, [made])
            return made

        changed = await self._database.persist(work, retry_seconds=5.0)
        if changed is not None:
            await self._refresh(account)
        return changed

    async def import_all(self, caller: Caller, wanted: Import) -> Sequence[TemplateRow]:
        """Import all templates of an export.

        Returns the stored ones in order, then the unchanged ones. Raises `InvalidRequest` that names each entry that
        cannot be stored. Nothing is stored then.
        """
        if await self._upstream.concerns(caller.account):
            raise InvalidRequest.because(ACCESS_DENIED, MIRRORED)
        account = self._owner_of(caller.account)
        now = self._clock.now_ms()

        async def work(connection: Connection) -> importing.ImportPlan:
            await templates.lock(connection, account)
            existing = await templates.list_templates(connection, account)
            submit = None
            if self.review.is_required:
                submit = functools.partial(self.review.submit, now=await database_clock.read(connection))
            found = importing.plan(wanted, account, existing, now, submit=submit)
            if not found.refused:
                await ttls.remove(connection, account, found.keep, kept=existing)
                await templates.put_templates(connection, account, found.keep)
            return found

        done = await self._database.persist(work, retry_seconds=5.0)
        done.require_all()
        await self._refresh(account)
        log.info("templates.imported", extra={"templates": len(done.keep), "username": caller.username})
        return [*done.keep, *done.unchanged]

    async def delete(self, caller: Caller, name: str, language: str | None, namespace: str | None) -> None:
        """Delete a template in one or all languages, and in one or all namespaces.

        Raises `InvalidRequest` when none exists.
        """
        account = self._owner_of(caller.account)
        deleted = 0

        async def work(connection: Connection) -> int:
            nonlocal deleted
            # An earlier attempt may have deleted it.
            deleted = await self._delete(connection, account, name, language, namespace) or deleted
            return deleted

        if await self._upstream.concerns(caller.account):
            is_known = namespace is None or any(one.namespace == namespace for one in await self.list(caller))
            if language == "" or not is_known:
                raise _missing(name)
            await self._upstream.delete(caller.account, name, language)
        elif not await self._database.persist(work, retry_seconds=5.0):
            raise _missing(name)
        await self._refresh(account)
        log.info("template.deleted", extra={"template": name, "language": language, "username": caller.username})

    async def _delete(
        self, connection: Connection, account: str, name: str, language: str | None, namespace: str | None
    ) -> int:
        deleted = await ttls.delete_templates(connection, account, name, language, namespace)
        if deleted and self.review.is_required:
            left = await templates.list_templates(connection, account)
            if not any(template.name == name for template in left):
                await template_history.note_deleted(connection, account, name, await database_clock.read(connection))
        return deleted

    async def edit(
        self, caller: Caller, name: str, language: str | None, namespace: str | None, fields: Mapping[str, Any]
    ) -> TemplateRow:
        """Replace components or category of a template, and return it as it is then. Raises `InvalidRequest`.

        language, namespace: None if the name has only one
        fields: `components`, `category` or both
        """
        if not fields:
            raise InvalidRequest.because(PARAMETER_MISSING, "components: is missing")
        named = [
            template
            for template in await self.list(caller)
            if template.name == name
            and language in (None, template.language)
            and namespace in (None, template.namespace)
        ]
        if len(named) > 1:
            raise InvalidRequest.because(
                PARAMETER_MISSING, f"language, namespace: name one of the {len(named)} templates {name[:100]}"
            )
        is_upstream = await self._upstream.concerns(caller.account)

        def change(present: TemplateRow, now: int) -> TemplateRow:
            wanted = bodies.check(Definition, {**schemas.defined(present), **fields})
            row = wanted.row(present.account, present.created_at)
            # The Cloud API limits edits itself.
            return redefine(present, row) if is_upstream else self.review.edit(present, row, now)

        try:
            changed = await self.change(caller, named[0].key, change) if named else None
        except EditRefused as refused:
            raise InvalidRequest.because(PARAMETER_INVALID, str(refused)) from None
        if changed is None:
            raise _missing(name)
        return changed

    async def _change_upstream(self, caller: Caller, key: Key, change: Change, ttl: int | None) -> TemplateRow | None:
        account = self._owner_of(caller.account)
        stored = next((template for template in await self.list(caller) if template.key == key), None)
        if stored is None:
            return None
        wanted = change(stored, self._clock.now_ms())
        if wanted == stored and ttl is None:
            return stored
        await self._upstream.edit(caller.account, stored, wanted, ttl)
        return await self._mirrored(account, stored.name, stored.language)

    async def _mirrored(self, account: str, name: str, language: str) -> TemplateRow:
        """Return a template that the Coreapp has mirrored. Raises `CoreappUnavailable` if it cannot be read."""
        await self._refresh(account)
        found = next(iter(self._of(account).get(name, {}).get(language, {}).values()), None)
        if found is None:
            raise CoreappUnavailable(f"the WABA has changed the template {name[:100]}, which cannot be read now")
        return found

    def _of(self, account: str) -> Mapping[str, Languages]:
        cached = self._cached.get(account)
        return cached[1] if cached is not None else {}

    async def _refresh(self, account: str) -> None:
        """Load a committed change. While the database is unavailable the next poll does it."""
        try:
            await self._load(account)
        except Exception as error:
            if not outages.is_outage(error):
                raise
            log.warning("templates.not_read", extra={"error": outages.brief(error)})

    async def run_once(self) -> None:
        """Poll for changes, and reload the templates of the numbers that have some."""
        for account in list(self._cached):
            await self._load(account)

    async def read_upstreams(self) -> None:
        """Read which numbers send through the Cloud API."""
        async with self._loading, self._database.reading() as connection:
            self._upstream_numbers = await _list_mirrored(connection)

    async def _load(self, account: str) -> None:
        # One at a time, so that an older read never replaces a newer one.
        async with self._loading, self._database.reading() as connection:
            version = await templates.find_version(connection, account)
            cached = self._cached.get(account)
            if cached is not None and version == cached[0]:
                return
            by_name: dict[str, dict[str, dict[str, TemplateRow]]] = {}
            for template in await templates.list_templates(connection, account):
                by_name.setdefault(template.name, {}).setdefault(template.language, {})[template.namespace] = template
            self._upstream_numbers = await _list_mirrored(connection)
            self._cached[account] = version, by_name, await template_ttls.list_ttls(connection, account)


async def _list_mirrored(connection: Connection) -> Set[str]:
    return frozenset(upstream.account for upstream in await upstreams.list_all(connection))


def _missing(name: str) -> InvalidRequest:
    return InvalidRequest.because(NOT_FOUND, f"name: there is no template {name[:100]}")
