"""Keeps the tables of logins short."""

from __future__ import annotations

from webapp.users.guessing import Guessing


class LoginUpkeep:
    """Once a minute is often enough."""

    def __init__(self, guessing: Guessing) -> None:
        self._guessing = guessing

    async def run_once(self) -> None:
        await self._guessing.sweep()
