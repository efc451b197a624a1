"""Creations and deletions of templates that limit the next creations, in the settings of the owner of a WABA."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import cloud_settings
from tidings.storage.business.cloud_settings import CloudSettingsRow

KIND = "template_history"
HOUR_MS, BLOCK_MS = 3600 * 1000, 30 * 24 * 3600 * 1000  # time that creations and deletions are kept
MAX_DELETED = 250  # names
_CREATED, _DELETED = "created", "deleted"


@dataclasses.dataclass(frozen=True, slots=True)
class TemplateHistory:
    """Creations of the last hour, and the newest deletions of the last 30 days."""

    created: Sequence[int]  # times, oldest first, Unix milliseconds
    deleted: Mapping[str, int]  # time of the deletion by name


async def find(connection: AsyncConnection, account: str, now: int) -> TemplateHistory:
    """Find the history of an account.

    now: time of the database's clock, Unix milliseconds
    """
    stored = await cloud_settings.find(connection, account, KIND)
    return TemplateHistory(
        [at for at in stored.get(_CREATED, ()) if at > now - HOUR_MS],
        {name: at for name, at in stored.get(_DELETED, {}).items() if at > now - BLOCK_MS},
    )


async def note_created(connection: AsyncConnection, account: str, now: int) -> None:
    """Add a creation. The caller has locked the account's templates."""
    known = await find(connection, account, now)
    await _put(connection, account, TemplateHistory([*known.created, now], known.deleted))


async def note_deleted(connection: AsyncConnection, account: str, name: str, now: int) -> None:
    """Add the deletion of a name in its last language, and drop the oldest beyond `MAX_DELETED`. The caller has locked
    the account's templates.
    """
    known = await find(connection, account, now)
    deleted = sorted({**known.deleted, name: now}.items(), key=operator.itemgetter(1))
    await _put(connection, account, TemplateHistory(known.created, dict(deleted[-MAX_DELETED:])))


async def _put(connection: AsyncConnection, account: str, history: TemplateHistory) -> None:
    content = {_CREATED: list(history.created), _DELETED: dict(history.deleted)}
    await cloud_settings.put(connection, CloudSettingsRow(account, KIND, content))
