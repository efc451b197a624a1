"""`message_send_ttl_seconds` of a template: time to live of its messages, in which they wait for the recipient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webapp.api.cloud import errors

NAME = "message_send_ttl_seconds"
LONGEST = -1  # 30 days, as for other messages
AUTHENTICATION, UTILITY, MARKETING = "AUTHENTICATION", "UTILITY", "MARKETING"
# Smallest and largest value by category. Those of marketing concern only an endpoint that is left out.
RANGES = {AUTHENTICATION: (30, 900), UTILITY: (30, 43_200), MARKETING: (43_200, 2_592_000)}
PASSWORD_SECONDS = 600  # time to live of one-time passwords without a value, seconds


def read(parameters: Mapping[str, Any], category: str) -> int | None:
    """Return the value for a template; None without one. Raises `GraphError` for a wrong one.

    category: of the template; for an unknown one the value is not read
    """
    given = parameters.get(NAME)
    if given is None or category not in RANGES:
        return None
    smallest, largest = RANGES[category]
    try:
        seconds = int(given) if isinstance(given, int | str) and not isinstance(given, bool) else 0
    except ValueError:
        seconds = 0
    if seconds != LONGEST and not smallest <= seconds <= largest:
        raise errors.invalid(f"{NAME}: should be {LONGEST}, or {smallest} to {largest} for {category}")
    return seconds


def of_message(stored: int | None, category: str) -> int:
    """Return the seconds that a message lives; 0 for as long as other messages.

    stored: value of its template; None for none
    """
    if stored is None:
        return PASSWORD_SECONDS if category == AUTHENTICATION else 0
    return 0 if stored == LONGEST or category == MARKETING else fitting(stored, category)


def fitting(stored: int, category: str) -> int:
    """Return a template's value, within the range of its category, which may have changed since the value was set."""
    if stored == LONGEST or category not in RANGES:
        return stored
    smallest, largest = RANGES[category]
    return min(max(stored, smallest), largest)
