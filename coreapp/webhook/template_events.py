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
from tidings.storage import outages
from tidings.storage.business import template_events, templates
from tidings.storage.business.template_events import TemplateEvent

log = logging.getLogger(__name__)

PAGE = 100  # events per read
PATIENCE = 5.0  # seconds that a read or a commit waits for an unreachable database
RETRY_SECONDS = 1.0  # seconds until the next try after an outage
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
        changed = self.context.shared.template_changes.of(self.context.shard)
        stopping = asyncio.create_task(stop.wait())
        stopping.add_done_callback(lambda _: changed.kick())
        try:
            while not stop.is_set():
                trying = asyncio.create_task(self._try(), name=self.name)
                await asyncio.wait([trying, stopping], return_when=asyncio.FIRST_COMPLETED)
                if not trying.done():
                    # Stopping does not wait for an unreachable database.
                    await service.cancel([trying])
                    break
                await changed.wait(trying.result())
        finally:
            stopping.cancel()
            # The next owner in this process may wait already.
            changed.kick()

    async def _try(self) -> float | None:
        """Run once. Returns the seconds until the next run; None for none before templates change."""
        try:
            return await self.run_once()
        except Exception as error:
            if not outages.is_outage(error):
                raise
            log.warning("templates.not_read", extra={"error": outages.brief(error)})
            return RETRY_SECONDS

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
