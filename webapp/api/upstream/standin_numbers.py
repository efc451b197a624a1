"""Choice of the numbers that stand for users whose number the Cloud API does not show.

A number is chosen here, because it decides about the shard, and issued by the owner of that shard. The choice depends
on the user alone, so that two processes choose the same one. A user keeps it, also in webhooks that show the number,
and with another id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidings.storage.business import standins
from tidings.storage.database import Connection
from tidings.wire import addresses, core, standin_numbers
from webapp.api.upstream.envelope import NumberEvent


async def choose(connection: Connection, account: str, prefix: str, events: Sequence[NumberEvent]) -> Mapping[str, str]:
    """Return the numbers that stand for users in these events, by the user's id: those that were issued, and new ones
    for senders without a number.

    prefix: first digits of new numbers
    """
    named = [user_id for event in events for user_id in (event.user_id, event.new_user_id) if user_id]
    users = list(dict.fromkeys(named))
    if not users:
        return {}
    numbers = {row.user_id: row.number for row in await standins.list_by_user(connection, account, users)}
    for event in events:
        if event.new_user_id:
            # One of both is known: the other id has the same number. A repeated notice finds that of the new id only.
            found = numbers.get(event.user_id) or numbers.get(event.new_user_id)
            if found:
                numbers.setdefault(event.user_id, found)
                numbers.setdefault(event.new_user_id, found)
    hidden = dict.fromkeys(event.user_id for event in events if _is_of_hidden_sender(event))
    wanted = {user_id: standin_numbers.candidates(prefix, user_id) for user_id in hidden if user_id not in numbers}
    if not wanted:
        return numbers
    every = [number for candidates in wanted.values() for number in candidates]
    taken = {row.number for row in await standins.list_by_number(connection, account, every)}
    for user_id, candidates in wanted.items():
        free = [number for number in candidates if number not in taken]
        if free:
            numbers[user_id] = free[0]
            taken.add(free[0])
    return numbers


def _is_of_hidden_sender(event: NumberEvent) -> bool:
    is_message = event.event.kind == core.MESSAGE_EVENT and not event.new_user_id
    return is_message and bool(event.user_id) and not addresses.is_wa_id(event.event.peer)
