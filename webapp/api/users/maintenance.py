"""Maintenance of the login tables."""

from __future__ import annotations

from webapp.api.users.guessing import Guessing


class LoginMaintenance:
    """Maintenance task that deletes expired rows of the login tables. Running it once a minute suffices."""

    def __init__(self, guessing: Guessing) -> None:
        self._guessing = guessing

    async def run_once(self) -> None:
        await self._guessing.sweep()
