"""Changes of templates that are due, and callbacks about all changes of templates."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from coreapp.journal.change import Change
from coreapp.number_service import NumberService
from coreapp.webhook import events
from tidings.storage.business import template_events, templates
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.template_events import TemplateEvent

log = logging.getLogger(__name__)

PAGE = 100  # events per read
RETRY_SECONDS = 5.0  # seconds that a read or a commit waits for an unreachable database
RETRY_SECONDS = 1.0  # seconds until the next try after an error
# Longest wait for a change, in seconds. Each wait starts from the database's clock, so that a change of it has an
# effect within this time.
LONGEST_WAIT = 60.0


class TemplateEvents(NumberService):
    """Service of the first shard of a number: applies changes of templates that are due, and reports all changes.

    Changes are rows that Webapps, commands and this service write with their transactions. Each row is deleted in the
    commit that stores its callback, so a change has one callback whichever process is killed.
    """

    name, failure, retry_seconds = "template-events", "templates.not_reported", RETRY_SECONDS

    async def run_once(self) -> float | None:
        """Apply the changes that are due, and commit the callbacks about all changes.

        Returns the seconds until the next change is due; None for none. Raises `LeaseLost`.
        """
        wait = await self._next_due()
        if wait is not None and wait <= 0:
            changed = await self._context.persist(
                lambda connection: templates.apply_due(connection, self._context.account), retry_seconds=RETRY_SECONDS
            )
            if changed:
                log.info("templates.changed", extra={"templates": changed, "account": self._context.account})
            wait = await self._next_due()
        while page := await self._list_events():
            await self._report(page)
        return None if wait is None else min(max(wait, 0.0), LONGEST_WAIT)

    async def _next_due(self) -> float | None:
        return await self._context.database.query(
            lambda connection: templates.next_due(connection, self._context.account), retry_seconds=RETRY_SECONDS
        )

    async def _list_events(self) -> Sequence[TemplateEvent]:
        return await self._context.database.query(
            lambda connection: template_events.list_events(connection, self._context.account, limit=PAGE),
            retry_seconds=RETRY_SECONDS,
        )

    async def _report(self, page: Sequence[TemplateEvent]) -> None:
        made = [self._callback(event) for event in page]
        await self._context.journal.write(
            Change(
                self._context.account,
                new_callbacks=[callback for callback in made if callback is not None],
                ended_template_events=[event.id for event in page],
            )
        )

    def _callback(self, event: TemplateEvent) -> Callback | None:
        """Return the callback about a change; None without one, and for a change that cannot be shown."""
        try:
            return events.template_change(self._context, event)
        except (LookupError, TypeError, ValueError):
            # Components come from the Cloud API unchecked. One odd template must not hold up the reports of others.
            log.exception("templates.unreadable_event", extra={"template": event.name, "kind": event.kind})
            return None
