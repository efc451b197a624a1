"""Changes of templates of a number that sends through the real Cloud API: its Coreapp makes them there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec

from cli import chosen_number, guard
from cli.coreapp_client import CoreappClient
from tidings.storage.business import numbers, shard_blocks, shards, templates, upstreams
from tidings.storage.business.templates import TemplateRow
from tidings.storage.database import Database
from tidings.wire import core
from webapp.api.templates import upstream_changes
from webapp.api.templates.review import redefine
from webapp.api.templates.schemas import Definition


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateOwner:
    """Number that a command acts on, and where its templates are."""

    number: str
    owner: str  # number that owns the WABA and has the templates here
    is_upstream: bool  # whether they are those of a WABA at the Cloud API


async def find_owner(database: Database, first: str, given: str | None) -> TemplateOwner:
    """Return the number to act on. Raises `CommandFailure` for one that the installation does not have.

    first: first number, which always has its own WABA
    given: value of `--number`; None without it
    """
    number = await chosen_number.find(database, first, given)
    async with database.reading() as connection:
        owner = number if number == first else await numbers.find_waba_owner(connection, number)
        return TemplateOwner(number, owner, await upstreams.exists(connection, number))


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class UpstreamTemplates:
    """Templates of one number. All methods raise `CommandFailure`."""

    database: Database
    coreapps: CoreappClient
    of: TemplateOwner

    async def create(self, definition: Definition) -> TemplateRow:
        """Create a template in the WABA. Returns it as it is there."""
        await self._change(upstream_changes.create(self.of.number, definition))
        return await self._require(definition)

    async def edit(self, definition: Definition) -> TemplateRow:
        """Give a template the category and the components of a definition. Returns it as it is in the WABA then."""
        stored = await self._require(definition)
        wanted = redefine(stored, definition.row(self.of.owner, stored.created_at))
        change = upstream_changes.edit(self.of.number, stored, wanted)
        if change is None:
            return stored
        await self._change(change)
        return await self._require(definition)

    async def delete(self, name: str, language: str | None, namespace: str | None) -> None:
        """Delete a template in the WABA, in one or all languages.

        namespace: refused unless it is that of the WABA; None for any
        """
        if namespace is not None and all(row.namespace != namespace for row in await self._list()):
            raise guard.CommandFailure(f"there is no template {name} in {namespace}")
        await self._change(upstream_changes.delete(self.of.number, name, language))

    async def _list(self) -> Sequence[TemplateRow]:
        async with self.database.reading() as connection:
            return await templates.list_templates(connection, self.of.owner)

    async def _require(self, definition: Definition) -> TemplateRow:
        name, language = definition.name, definition.language
        found = [row for row in await self._list() if (row.name, row.language) == (name, language)]
        if not found:
            raise guard.CommandFailure(f"there is no template {name} in {language}")
        return found[0]

    async def _change(self, change: core.ChangeTemplate) -> None:
        async with self.database.reading() as connection:
            number = await numbers.find(connection, self.of.number)
            owners = await shards.list_owners(connection)
        first = shard_blocks.first_shard(number.shard_block) if number is not None else 0
        address = next((owner.address for owner in owners if owner.shard == first), "")
        if not address:
            raise guard.CommandFailure(f"no Coreapp of {self.of.number} runs, which changes templates at the Cloud API")
        await self.coreapps.call(address, lambda n: msgspec.structs.replace(change, n=n))
