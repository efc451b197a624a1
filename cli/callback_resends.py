"""Posting of all callbacks again that a filter selects, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from cli.guard import CommandFailure
from cli.queue_changes import QueueChanges
from tidings.storage.business import callback_views, numbers
from tidings.storage.business.callback_views import CallbackFilter
from tidings.storage.database import Database

PAGE = 1000  # callbacks per page


async def resend(
    database: Database,
    changes: QueueChanges,
    account: str,
    choice: CallbackFilter,
    report: Callable[[int, int | None], None],
    *,
    page: int = PAGE,
) -> int:
    """Post the callbacks of a number again, newest first, at the rate of `changes`. Returns their number.

    Those not tried yet are left out, and each event is posted once. A cancelled call leaves whole pages. Raises
    `CommandFailure`, also when there are only ended callbacks and the number has no running Coreapp, which posts them.

    choice: selection with an `until`, so that callbacks that this call causes are not selected
    report: called after each page with the number so far, and the Unix milliseconds back to which; None for the last
    """
    total, before, is_listed = 0, None, False
    events: set[str] = set()
    while True:
        async with database.reading() as connection:
            number = await numbers.find(connection, account)
            block = number.shard_block if number is not None else 0
            found = await callback_views.list_to_resend(
                connection, account, choice, block=block, before=before, limit=page, events=events
            )
        count = await changes.replay(found.seqs)
        total += count
        is_listed = is_listed or bool(found.seqs)
        report(total, (found.older >> 5) // 1000 if found.older is not None else None)
        if found.older is None:
            break
        before = found.older
        await asyncio.sleep(count / changes.replay_rate)
    if is_listed and not total:
        raise CommandFailure(
            f"no Coreapp of {account} runs, which posts ended callbacks again: start one, then repeat the command"
        )
    return total
