"""File stores: the directory that the settings name is the one that the database records."""

from __future__ import annotations

from collections.abc import Sequence

from cli.doctor.findings import Finding, error, fine, warning
from tidings.objects.identity import Identity
from tidings.objects.marker import MarkedStore


class RecordedStore:
    """The marker of one file store."""

    def __init__(self, identity: Identity, store: MarkedStore) -> None:
        self.name = f"{identity.name} store"
        self._identity = identity
        self._store = store

    async def run(self) -> Sequence[Finding]:
        where = self._store.location
        adopt = f"tidings files adopt {self._identity.name}"
        remedy = f"mount it, or set the right one; to use this one from now on: `{adopt}`"
        try:
            if not await self._identity.is_recorded():
                return [warning(self.name, f"{where} is not recorded yet", "the first start of a process does that")]
            wrong = await self._identity.refresh()
        except OSError as failure:
            return [error(self.name, f"{where}: {failure.strerror or failure}", remedy)]
        return [error(self.name, wrong, remedy) if wrong else fine(self.name, f"{where} is the recorded one")]
