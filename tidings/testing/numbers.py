"""Recipient numbers with a fixed behaviour in test mode: `15550`, two digits for the kind, and four digits `NNNN`."""

from __future__ import annotations

import enum

PREFIX = "15550"
_LENGTH = 11  # digits of a test number
MAX_REPLIES = 500  # messages with which a number of the kind `REPLIES` responds to one message
_FIRST_CODE = 130_000


class TestKind(enum.Enum):
    """Kinds of test numbers. The value is the two digits after the prefix."""

    __test__ = False  # this is no class of tests

    FAILS = "30"  # accepted, then failed with the Cloud API's code 13NNNN
    REFUSED = "31"  # refused at once with 13NNNN
    DELAYS = "32"  # statuses are delayed by NNNN × 10 ms
    DUPLICATES = "33"  # each webhook is posted twice
    REORDERS = "34"  # `delivered` is posted before `sent`
    REPLIES = "35"  # replies with NNNN messages at once
    DROPS = "36"  # the connection closes without a response after the message was accepted
    NAMED = "37"  # echoes; its user has a user name, so that webhooks with ids of users do not show the number

    @property
    def is_sent_to(self) -> bool:
        """Return whether messages are sent to the number, so that it must exist on the network."""
        return self not in (TestKind.FAILS, TestKind.REFUSED)


def kind_of(number: str) -> TestKind | None:
    """Return the kind of a test number; `None` for any other number."""
    if len(number) != _LENGTH or not number.startswith(PREFIX + "3") or not (number.isascii() and number.isdigit()):
        return None
    try:
        return TestKind(number[len(PREFIX) : -4])
    except ValueError:
        return None


def is_test_number(number: str) -> bool:
    """Return whether this is a test number of any kind. The robots register them on demand."""
    return kind_of(number) is not None


def code_of(number: str) -> int:
    """Return the Cloud API's code with which messages to this test number fail: 13NNNN."""
    return _FIRST_CODE + int(number[-4:])


def delay_of(number: str) -> int:
    """Return the milliseconds by which the statuses of messages to a number are delayed; 0 for most numbers."""
    return 10 * int(number[-4:]) if kind_of(number) is TestKind.DELAYS else 0


def replies_of(number: str) -> int:
    """Return the number of messages with which a number replies to one message, at most `MAX_REPLIES`; usually 0."""
    return min(int(number[-4:]), MAX_REPLIES) if kind_of(number) is TestKind.REPLIES else 0


def username_of(number: str) -> str:
    """Return the user name of a number's user; empty for most numbers."""
    return f"user{number[-4:]}" if kind_of(number) is TestKind.NAMED else ""


def visible(number: str, *, with_ids: bool) -> str:
    """Return a number as ids of messages in the Cloud API contain it: empty for one whose user has a user name.

    with_ids: whether users have ids, without which every number is visible
    """
    return "" if with_ids and username_of(number) else number
