"""Pauses of numbers, which commands and the console request."""

from __future__ import annotations

import time

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import audit_entries, numbers
from tidings.storage.business.audit_entries import AuditAction
from tidings.storage.business.numbers import ACTIVE, PAUSED, REMOVING


class NumberMissing(Exception):
    """The installation does not have this number."""


class NumberBeingRemoved(Exception):
    """The rows of the number are being deleted."""


class NumberIsFirst(Exception):
    """The number is the first one, which the caller must not change."""


async def change(
    connection: AsyncConnection, number: str, *, is_paused: bool, by: str, refuses_first: bool = False
) -> None:
    """Pause or resume a number, and record it in the audit of the first number.

    Raises `NumberMissing`, `NumberBeingRemoved` and `NumberIsFirst`.

    by: user, for the audit
    refuses_first: whether to refuse the first number with `NumberIsFirst`
    """
    row = await numbers.find(connection, number, lock=True)
    if row is None:
        raise NumberMissing(number)
    if refuses_first and row.is_first:
        raise NumberIsFirst(number)
    if row.state == REMOVING:
        raise NumberBeingRemoved(number)
    state = PAUSED if is_paused else ACTIVE
    if row.state == state:
        return
    await numbers.set_state(connection, number, state)
    first = await numbers.find_first(connection)
    action = AuditAction.PAUSE_NUMBER if is_paused else AuditAction.RESUME_NUMBER
    account = first.number if first is not None else number
    entry = audit_entries.make(account, action, number, by=by, at=time.time_ns() // 1_000_000)
    await audit_entries.add(connection, entry)
