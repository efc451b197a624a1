"""Starting a garbage collection in every Coreapp."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from tidings.wire import core
from webapp.coreapps import Coreapps
from webapp.errors import CoreappAway
from webapp.tokens import Caller

log = logging.getLogger(__name__)

# Seconds that a Coreapp may take to say that it has begun.
_PATIENCE = 5.0

PROCESSING, FAILED = "processing", "failed"


class Collections:
    """Garbage collections; what became of them is told by webhook."""

    def __init__(self, coreapps: Coreapps) -> None:
        self._coreapps = coreapps

    async def start(self, caller: Caller, kind: str) -> Mapping[str, Any]:
        """The state of the collection: of one Coreapp, or of each of several. Raises what the link raises."""
        if len(self._coreapps.coreapps()) <= 1:
            await self._coreapps.ask_first_safely(lambda n: core.CollectGarbage(n=n, kind=kind), core.Done)
            states: dict[str, Any] = {"status": PROCESSING}
        else:
            answers = await self._coreapps.ask_each(
                lambda n: core.CollectGarbage(n=n, kind=kind), core.Done, timeout=_PATIENCE
            )
            states = {
                coreapp.name: {"status": FAILED if isinstance(answer, CoreappAway) else PROCESSING}
                for coreapp, answer in answers
                if coreapp.shards
            }
        log.info("garbage.started", extra={"username": caller.username, "kind": kind})
        return states
