"""Checks of the files and media providers that a message names.

A file must exist and be of the right kind, and a provider must exist.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from tidings.aio.batcher import Batcher, BatcherFull
from tidings.aio.clock import Clock
from tidings.e2ee.installation_secrets import SecretSealer, UnreadableSecret, provider_label
from tidings.egress.providers import ProviderCredentials
from tidings.media import kinds
from tidings.storage.business import media, media_providers
from tidings.storage.business.media import MediaRow
from tidings.storage.business.media_providers import MediaProviderRow
from tidings.storage.database import Connection, Database
from tidings.wire.codes import ACCESS_DENIED, MEDIA_FORMAT, NOT_FOUND, PARAMETER_INVALID
from webapp.api.media import schemas
from webapp.api.media.service import TOUCH_AFTER_MS
from webapp.api.messages.attachments import Attachment
from webapp.auth.tokens import Caller
from webapp.http.errors import InvalidRequest, Overloaded, Problem

log = logging.getLogger(__name__)


class References:
    """Lookup of the files of a message when it is accepted. Ids are read in batches.

    At most 10,000 lookups wait. A further message is refused with 503.
    """

    def __init__(self, database: Database, safe: SecretSealer, clock: Clock) -> None:
        self._database = database
        self._safe = safe
        self._clock = clock
        self._reads: Batcher[str, MediaRow | None] = Batcher("media-read", self._read, max_size=500, max_pending=10_000)

    async def check(self, caller: Caller, attachments: Sequence[Attachment]) -> None:
        """Check the attachments of a message.

        A file that is found will not be collected as unused for several weeks. Raises `InvalidRequest` that names
        each wrong field, and `Overloaded`.
        """
        found = {media_id: await self._find(caller, media_id) for media_id in _once(a.id for a in attachments if a.id)}
        present = [entry for entry in found.values() if entry is not None]
        found |= await self._touch(present)
        problems = [
            problem
            for attachment in attachments
            if attachment.id and (problem := _problem_of(attachment, found[attachment.id])) is not None
        ]
        for provider in _once(a.provider for a in attachments if a.provider):
            async with self._database.reading() as connection:
                known = await media_providers.find_provider(connection, caller.account, provider)
            config = None if known is None else self._open(known)
            problems += [
                problem
                for a in attachments
                if a.provider == provider and (problem := find_provider_problem(a, config, caller)) is not None
            ]
        if problems:
            raise InvalidRequest(problems)

    async def check_file(self, caller: Caller, field: str, kind: str, media_id: str) -> None:
        """Check a file that `field` names by its id, to be used as a `kind`.

        As `check`, otherwise.
        """
        found = await self._find(caller, media_id)
        if found is not None:
            found = (await self._touch([found])).get(media_id, found)
        problem = find_problem(field, kind, found)
        if problem is not None:
            raise InvalidRequest([problem])

    def _open(self, provider: MediaProviderRow) -> ProviderCredentials:
        """Return a provider's configuration; an empty one when it cannot be unsealed.

        The Coreapp then reports that the credentials cannot be read.
        """
        try:
            opened = self._safe.open(provider.account, provider_label(provider.name), provider.config)
            return msgspec.json.decode(opened, type=ProviderCredentials)
        except (UnreadableSecret, ValueError) as error:
            log.warning("providers.unreadable", extra={"error": str(error)})
            return ProviderCredentials()

    async def _find(self, caller: Caller, media_id: str) -> MediaRow | None:
        if not schemas.is_id(media_id):
            return None
        try:
            found = await self._reads.submit(media_id)
        except BatcherFull:
            raise Overloaded("too many messages wait for a lookup of their files") from None
        return found if found is not None and found.account == caller.account else None

    async def _read(self, ids: Sequence[str]) -> Sequence[MediaRow | None]:
        async with self._database.reading() as connection:
            found = {entry.id: entry for entry in await media.list_media(connection, _once(ids))}
        return [found.get(media_id) for media_id in ids]

    async def _touch(self, entries: Sequence[MediaRow]) -> dict[str, MediaRow | None]:
        """Update the time of last use of files that were last used long ago, and return these files as updated."""
        now = self._clock.now_ms()
        old = [entry.id for entry in entries if entry.used_at < now - TOUCH_AFTER_MS]
        if not old:
            return {}

        async def work(connection: Connection) -> Sequence[MediaRow]:
            await media.touch(connection, old, now)
            return await media.list_media(connection, old)

        kept = {entry.id: entry for entry in await self._database.persist(work, retry_seconds=5.0)}
        return {media_id: kept.get(media_id) for media_id in old}


def _problem_of(attachment: Attachment, found: MediaRow | None) -> Problem | None:
    return find_problem(f"{attachment.field}.id", attachment.kind, found, in_template=attachment.in_template)


def find_problem(field: str, kind: str, found: MediaRow | None, *, in_template: bool = False) -> Problem | None:
    """Return the problem of a file that `field` names, to be used as a `kind`; `None` when it fits."""
    if found is None:
        return Problem(NOT_FOUND, f"{field}: there is no media with this id")
    if in_template and kind == kinds.DOCUMENT:
        if found.mime_type != kinds.PDF:
            return Problem(MEDIA_FORMAT, f"{field}: is {found.mime_type}, should be {kinds.PDF}")
    elif not kinds.may_be_sent_as(found.mime_type, kind):
        code = MEDIA_FORMAT if in_template else PARAMETER_INVALID
        wanted = " or ".join(kinds.types_of(kind))
        return Problem(code, f"{field}: is {found.mime_type}, should be {wanted}")
    if found.size > kinds.LIMITS[kind]:
        return Problem(PARAMETER_INVALID, f"{field}: has {found.size} bytes, the limit is {kinds.LIMITS[kind]}")
    return None


def find_provider_problem(attachment: Attachment, config: ProviderCredentials | None, caller: Caller) -> Problem | None:
    """Return the problem of a provider in its field; `None` when it may be used.

    A provider's credentials are sent only to the hosts that an administrator bound them to. Credentials that are
    bound to no host may be used by administrators only, who can read them anyway.

    config: `None` when no provider has this name
    """
    field = f"{attachment.field}.provider.name"
    if config is None:
        return Problem(PARAMETER_INVALID, f"{field}: there is no media provider with this name")
    if not config.hosts and not caller.is_admin and config.authorization:
        return Problem(ACCESS_DENIED, f"{field}: has no hosts, so only administrators may use it")
    if config.hosts and not config.is_for(attachment.link):
        return Problem(PARAMETER_INVALID, f"{attachment.field}.link: its host is not one of the provider's hosts")
    return None


def _once(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
