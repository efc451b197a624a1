"""Heartbeats of a process, as Webapps, Coreapps and nodes of the network send them."""

from __future__ import annotations

import asyncio

import pytest

from tidings.aio.membership import Membership


class Scripted(Membership):
    """Membership whose heartbeats have the given outcomes, and which is asked to stop after the last one."""

    interval = 0.001

    def __init__(self, *outcomes: Exception | None) -> None:
        self.outcomes = list(outcomes)
        self.stop = asyncio.Event()
        self.missing: list[Exception] = []

    async def renew(self) -> None:
        outcome = self.outcomes.pop(0)
        if not self.outcomes:
            self.stop.set()
        if outcome is not None:
            raise outcome

    def missed(self, error: Exception) -> None:
        if isinstance(error, PermissionError):
            raise error
        self.missing.append(error)

    async def remove(self) -> None:
        raise TimeoutError


async def test_a_missed_heartbeat_is_followed_by_the_next_one() -> None:
    away = OSError("away")
    membership = Scripted(None, away, None)
    async with asyncio.timeout(30):
        await membership.run(membership.stop)
    assert (membership.outcomes, membership.missing) == ([], [away])


async def test_an_error_that_the_process_cannot_survive_ends_the_heartbeats() -> None:
    membership = Scripted(None, PermissionError("replaced"), None)
    async with asyncio.timeout(30):
        with pytest.raises(PermissionError, match="replaced"):
            await membership.run(membership.stop)
    assert membership.outcomes == [None]


async def test_a_failure_to_leave_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    await Scripted().leave()
    assert [record.message for record in caplog.records] == ["membership.not_left"]
