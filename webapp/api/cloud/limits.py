"""Limits of the Cloud API that apply to the messages of each number. All of them are off by default."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class SendingLimits:
    """Limits that apply to the messages of one number."""

    is_pair_limited: bool = False


class NumberSendingLimits:
    """Limits of each number, the same for all Webapps."""

    def __init__(self, defaults: SendingLimits) -> None:
        """defaults: limits of numbers without limits of their own"""
        self._defaults = defaults

    def of(self, account: str) -> SendingLimits:
        """Return the limits of a number."""
        return self._defaults
