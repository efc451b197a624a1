"""Effects of test numbers on requests."""

from __future__ import annotations

from collections.abc import Sequence

from tidings.testing import numbers
from tidings.testing.numbers import TestKind
from tidings.wire import phone_numbers, recipients
from webapp.api.testing.robots_link import RobotsLink
from webapp.http.errors import InducedFailure, ResponseWithheld

REFUSED_BY_NUMBER = "messages to this test number are refused (docs/testing.md)"


class NumberRules:
    """Applies the test numbers to messages and to contact checks, and has the robots register them first."""

    def __init__(self, robots: RobotsLink) -> None:
        self._robots = robots
        self._enrolled: set[str] = set()  # the robots register at most 1,000

    async def before(self, to: str) -> None:
        """Refuse a message to a number of that kind, and register one that receives messages.

        Raises `InducedFailure`, and the errors of `RobotsLink.call`.
        """
        kind = numbers.kind_of(to)
        if kind is TestKind.REFUSED:
            raise InducedFailure(numbers.code_of(to), REFUSED_BY_NUMBER)
        if kind is not None and kind.is_sent_to:
            await self._enrol(to)

    async def before_check(self, inputs: Sequence[str]) -> None:
        """Register the test numbers among the inputs of a contact check. Raises the errors of `RobotsLink.call`."""
        for text in inputs:
            number = phone_numbers.normalise(text)
            if number and numbers.is_test_number(number):
                await self._enrol(number)

    def after(self, to: str) -> None:
        """Close the connection without a response for a number of that kind. Raises `ResponseWithheld`."""
        if numbers.kind_of(to) is TestKind.DROPS:
            raise ResponseWithheld

    async def _enrol(self, number: str) -> None:
        if number not in self._enrolled:
            await self._robots.call(recipients.EnrolRecipient(number))
            self._enrolled.add(number)
