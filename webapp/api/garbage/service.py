"""Start a garbage collection in every Coreapp."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tidings.wire import core
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import Coreapps
from webapp.http.errors import CoreappAway

log = logging.getLogger(__name__)

# Seconds for which the response waits for each Coreapp to confirm the start.
_PATIENCE = 5.0

PROCESSING, FAILED = "processing", "failed"


class Collections:
    """Garbage collections. Their results are posted to the webhook."""

    def __init__(self, coreapps: Coreapps) -> None:
        self._coreapps = coreapps

    async def start(self, caller: Caller, kind: str) -> Mapping[str, Any]:
        """Start a collection, and return its state: of the only Coreapp, or of each of several by name.

        Raises the errors of the Coreapp link.
        """
        if len(self._coreapps.coreapps()) <= 1:
            await self._coreapps.call_primary_repeatable(lambda n: core.CollectGarbage(n=n, kind=kind), core.Done)
            states: dict[str, Any] = {"status": PROCESSING}
        else:
            answers = await self._coreapps.call_each(
                lambda n: core.CollectGarbage(n=n, kind=kind), core.Done, timeout=_PATIENCE
            )
            states = {
                coreapp.name: {"status": FAILED if isinstance(answer, CoreappAway) else PROCESSING}
                for coreapp, answer in answers
                if coreapp.shards
            }
        log.info("garbage.started", extra={"username": caller.username, "kind": kind})
        return states
