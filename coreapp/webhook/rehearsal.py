"""Failures of webhooks that a test has requested."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from tidings.testing import numbers
from tidings.testing.faults import FaultFile, FaultTarget
from tidings.testing.numbers import TestKind


class WebhookRehearsal:
    """Applies the faults of webhooks, and the test numbers whose webhooks are posted twice."""

    def __init__(self, directory: Path) -> None:
        """directory: data directory"""
        self._faults = FaultFile(directory)

    async def post(self, recipients: Collection[str], post: Callable[[], Awaitable[int]]) -> int:
        """Return the HTTP status of an attempt. An attempt that a fault applies to posts nothing and returns the
        fault's status.

        recipients: numbers that the callbacks of the post concern; empty for none
        post: makes one post and returns its status
        """
        fault = self._faults.take(FaultTarget.WEBHOOKS)
        if fault is not None:
            return fault.http
        status = await post()
        if any(numbers.kind_of(recipient) is TestKind.DUPLICATES for recipient in recipients):
            status = await post()
        return status
