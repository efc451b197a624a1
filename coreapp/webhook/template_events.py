"""Reviews of templates that have ended, and callbacks about changes of templates."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence

from coreapp.context import ShardContext
from coreapp.journal import Change
from coreapp.webhook import events
from tidings.aio import service
from tidings.storage.business import template_events, templates
from tidings.storage.business.shards import LeaseLost
from tidings.storage.business.template_events import TemplateEvent

log = logging.getLogger(__name__)

PAGE = 100  # events per read
PATIENCE = 5.0  # seconds that a read or a commit waits for an unreachable database
RETRY_SECONDS = 1.0  # seconds until the next try after an error
# Longest wait for a review, in seconds. Each wait starts from the database's clock, so that a change of it has an
# effect within this time.
LONGEST_WAIT = 60.0


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class TemplateEvents:
    """Service of the first shard of a number: approves templates whose review has ended, and reports all changes.

    Changes are rows that Webapps, commands and this service write with their transactions. Each row is deleted in the
    commit that stores its callback, so a change has one callback whichever process is killed.
    """

    name = "template-events"

    context: ShardContext
    # Events of the last commit. A node of a cluster may still show them.
    _ended: frozenset[str] = dataclasses.field(default=frozenset(), init=False)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set. Raises `LeaseLost`."""
        changed = self.context.shared.template_changes.of(self.context.shard)
        await service.repeat(stop, changed, self.run_once, failed=_failed)

    async def run_once(self) -> float | None:
        """Approve templates whose review has ended, and commit the callbacks about all changes.

        Returns the seconds until the next review ends; None without one. Raises `LeaseLost`.
        """
        wait = await self._next_review()
        if wait is not None and wait <= 0:
            approved = await self.context.persist(
                lambda connection: templates.approve_due(connection, self.context.account), patience=PATIENCE
            )
            if approved:
                log.info("templates.approved", extra={"templates": approved, "account": self.context.account})
            wait = await self._next_review()
        while page := await self._read():
            await self._report(page)
        return None if wait is None else min(max(wait, 0.0), LONGEST_WAIT)

    async def _next_review(self) -> float | None:
        return await self.context.database.query(
            lambda connection: templates.next_review(connection, self.context.account), patience=PATIENCE
        )

    async def _read(self) -> Sequence[TemplateEvent]:
        page = await self.context.database.query(
            lambda connection: template_events.list_events(
                connection, self.context.account, limit=PAGE + len(self._ended)
            ),
            patience=PATIENCE,
        )
        return [event for event in page if event.id not in self._ended]

    async def _report(self, page: Sequence[TemplateEvent]) -> None:
        made = [events.template_change(self.context, event) for event in page]
        ended = [event.id for event in page]
        await self.context.journal.write(
            Change(
                self.context.account,
                new_callbacks=[callback for callback in made if callback is not None],
                ended_template_events=ended,
            )
        )
        self._ended = frozenset(ended)


def _failed(error: Exception) -> float:
    """Return the seconds until the next try. Raises `LeaseLost`."""
    if isinstance(error, LeaseLost):
        raise error
    log.warning("templates.not_reported", extra={"error": repr(error)[:200]})
    return RETRY_SECONDS
