"""Records in the audit and in the log who has seen a stored content."""

from __future__ import annotations

import functools
import logging

from coreapp.context import ShardContext
from tidings.storage.business import audit_entries
from tidings.storage.business.audit_entries import AuditAction

log = logging.getLogger(__name__)

# Seconds for the commit: fewer than callers of the link wait for a response.
RETRY_SECONDS = 20.0


async def record(context: ShardContext, action: AuditAction, subject: str, by: str) -> None:
    """Record that a user requested a content. Raises the errors of `ShardContext.persist`.

    subject: as in `audit_entries.AuditRow`
    by: requester; empty for one that an earlier release does not name, who is logged only
    """
    if by:
        entry = audit_entries.make(context.account, action, subject, by=by, at=context.now())
        await context.persist(functools.partial(audit_entries.add, entry=entry), retry_seconds=RETRY_SECONDS)
    log.info("content.shown", extra={"action": action, "id": subject, "by": by})
