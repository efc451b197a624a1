"""Rows that fill the tables behind the lists of the console: messages, callbacks, their history and audit."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
import secrets
import string
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from harness.mariadb import MariaDB
from tidings.storage.business import callback_history, callback_purges, callback_replays, callbacks
from tidings.storage.business.callback_history import EndedAttempt
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.messages import Listing, Status
from tidings.storage.database import Database, pages
from tidings.wire import ids

ACCOUNT = "15550000000"
DAY = 86_400_000  # milliseconds
MESSAGE_DAYS = 10  # over which the messages are spread
RECEIVED = 0.3  # fraction of the messages that recipients sent
QUEUED = 0.1  # fraction of the callbacks that wait or were given up
RARE = 20  # messages and callbacks of each rare type, status, kind and recipient
BUSY = 0.1  # fraction of the messages and callbacks with one recipient
PEERS = 50_000
SEGMENT = (17, 60)  # callbacks of a segment
REPLAYS, PURGES = 50_000, 2_000  # entries of the audit
_INSERTED = 2_000  # rows of one statement

BUSY_PEER, RARE_PEER, NO_PEER = "15556000001", "15556000002", "15556000003"
KINDS = (
    *("text", "template", "image", "audio", "voice", "video", "document", "location", "contacts", "interactive"),
    *("hsm", "button", "reaction", "unknown"),
)
RARE_KIND, NO_KIND = "sticker", "order"
RARE_EVENT = "contact_change"
_LETTERS = string.ascii_letters + string.digits


@dataclasses.dataclass(frozen=True, slots=True)
class FilledRows:
    """Properties of the rows that were filled in."""

    now: int  # Unix milliseconds of the newest row
    messages: int
    callbacks: int
    subject: str  # id of a message that a callback in the middle of the history is about


def fill(server: MariaDB, schema: str, count: int, show: Callable[[int], None]) -> int:
    """Insert `count` messages in the order of their ids. Returns the time of the newest, Unix milliseconds.

    show: called with the number of messages inserted so far
    """
    now = time.time_ns() // 1_000_000 - 60_000
    received = int(count * RECEIVED)
    with server.connect(schema) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION unique_checks = 0, foreign_key_checks = 0")
        done = 0
        for rows in (_messages(received, now, is_received=True), _messages(count - received, now, is_received=False)):
            while page := list(itertools.islice(rows, _INSERTED)):
                cursor.execute(f"INSERT INTO messages ({_COLUMNS}) VALUES {','.join(page)}")
                connection.commit()
                done += len(page)
                show(done)
        cursor.execute("ANALYZE TABLE messages")
    return now


_COLUMNS = "id, account, shard, peer, kind, status, created_at, request_id, listing, sent_at, delivered_at, read_at"


def _messages(count: int, now: int, *, is_received: bool) -> Iterator[str]:
    """Yield rows in SQL, oldest first. Rare ones are spread evenly."""
    chance = random.Random(1)
    bound = ids.bound_of_received if is_received else ids.bound
    step = max(1, count // RARE)
    for number in range(count):
        at = now - MESSAGE_DAYS * DAY * (count - number) // count
        name = bound(at / 1000) + "".join(chance.choices(_LETTERS, k=15))
        # The rare values are of different messages.
        rare = number % step
        kind = RARE_KIND if rare == 1 else chance.choice(KINDS)
        status = _status(rare, chance, is_received=is_received)
        listing = int({Status.FAILED: Listing.FAILED}.get(status, Listing.INBOUND if is_received else Listing.OUTBOUND))
        times = [at + 40, at + 90, at + 900] if status == Status.READ else [0, 0, 0]
        yield (
            f"('{name}','{ACCOUNT}',0,'{_peer(rare, chance)}','{kind}',{int(status)},{at},'',{listing},"
            f"{','.join(map(str, times))})"
        )


def _status(rare: int, chance: random.Random, *, is_received: bool) -> Status:
    if is_received:
        return Status.MARKED_READ if rare == 2 else Status.RECEIVED
    if rare == 2:
        return Status.ACCEPTED
    if rare == 3:
        return Status.FAILED
    return Status.READ if chance.random() < 0.7 else Status.DELIVERED


def _peer(rare: int, chance: random.Random) -> str:
    if rare == 4:
        return RARE_PEER
    return BUSY_PEER if chance.random() < BUSY else f"1555{chance.randrange(PEERS):07}"


async def fill_callbacks(database: Database, count: int, now: int, show: Callable[[int], None]) -> FilledRows:
    """Add `count` callbacks of the day before `now` (Unix milliseconds), oldest first, and an audit.

    The queue has a tenth of them, in each state. The texts of the others are not sealed.

    show: called with the number of callbacks added so far
    """
    chance = random.Random(2)
    step, queued = max(1, count // RARE), int(count * QUEUED)
    made = functools.partial(_callback, chance=chance, step=step, now=now, count=count)
    subject, done = "", 0
    while done < count - queued:
        size = min(chance.randint(*SEGMENT), count - queued - done)
        ended = [EndedAttempt(one, 1, one.created_at, 3, 200, b"ok") for one in map(made, range(done, done + size))]
        async with database.transaction() as connection:
            await callback_history.add(connection, ended, lambda account, name, texts: texts)
        if not subject and done >= count // 2:
            subject = ended[0].callback.subject
        done += size
        show(done)
    while done < count:
        rows = [made(number) for number in range(done, min(done + 1_000, count))]
        await _enqueue(database, rows, chance)
        done += len(rows)
        show(done)
    await _audit(database, now)
    return FilledRows(now, 0, count, subject)


def _callback(number: int, *, chance: random.Random, step: int, now: int, count: int) -> Callback:
    rare = number % step
    at = now - DAY * (count - number) // count
    peer, subject = _peer(rare, chance), ids.bound(at / 1000) + "".join(chance.choices(_LETTERS, k=15))
    body = b'{"statuses":[{"id":"%s","recipient_id":"%s","status":"read","timestamp":"%d"}]}' % (
        subject.encode(),
        peer.encode(),
        at // 1000,
    )
    kind = RARE_EVENT if rare == 5 else "status_change" if chance.random() < 0.7 else "inbound_message"
    # Further callbacks of one microsecond have the next numbers.
    return Callback((at * 1000 << 5) + number % 32, 0, ACCOUNT, subject, kind, body, at, recipient=peer)


async def _enqueue(database: Database, rows: Sequence[Callback], chance: random.Random) -> None:
    """Add callbacks: 6 of 10 not tried yet, 3 failing, 1 given up."""
    states: dict[str, list[Callback]] = {"pending": [], "failing": [], "dead": []}
    for row in rows:
        state = chance.choices(tuple(states), (6, 3, 1))[0]
        if state != "pending":
            row = dataclasses.replace(row, attempt=3, last_error="status 503")
        states[state].append(row)
    async with database.transaction() as connection:
        await callbacks.enqueue(connection, rows, [row.body for row in rows])
        await callbacks.reschedule(connection, states["failing"], [row.body for row in states["failing"]])
        await callbacks.mark_dead(connection, states["dead"], [row.body for row in states["dead"]])


async def _audit(database: Database, now: int) -> None:
    replays = [Replay(secrets.randbits(62), now - number * 10, 0, f"user {number % 3}") for number in range(REPLAYS)]
    for page in pages(replays):
        async with database.transaction() as connection:
            await callback_replays.add(connection, page)
    async with database.transaction() as connection:
        for number in range(PURGES):
            row: Any = CallbackPurgeRow(now - number * 1_000, 0, "a user", "all", 17)
            await callback_purges.add(connection, row)
