"""History of callbacks: those that the webhook has accepted, and the attempts at the others.

The callbacks of a shard that a transaction ends are one row, a segment: their metadata in `entries`, their texts sealed
together in `texts`, and in `fingerprints` 4-byte hashes of what they can be found by. Both columns are compressed.
A row per callback with its indexes would cost a third of what the callbacks themselves cost (docs/decisions/0069).
Small segments are merged later.

The attempts at a callback in the queue are rows of their own.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from operator import attrgetter
from typing import Annotated, NamedTuple

import msgspec
import sqlalchemy as sa
from isal import isal_zlib

from tidings.storage import types
from tidings.storage.business import callbacks
from tidings.storage.business.callbacks import Callback
from tidings.storage.business.tables import metadata
from tidings.storage.database import Connection, any_of, insert_or_update, pages, select_paged
from tidings.storage.rows import write_instances, write_text

ATTEMPTS = 20  # latest attempts that are kept of each callback in the queue
RESPONSE_BYTES = 1024  # bytes of a response that are kept

SPAN = 60_000_000 << 5  # largest difference between the first and the last `seq` of a segment: 60 s
MAX_TEXTS = 256 * 1024  # bytes of the texts of a segment with several callbacks
MAX_FOUND = 50  # callbacks that one query finds
SMALL = 20  # callbacks; segments with fewer are merged
MERGED = 200  # callbacks of a merged segment
PACKED = 1024  # bytes from which entries and texts are compressed: for fewer, it takes longer than it saves

# Seals the texts of a segment: called with the account, the name of the segment, and the texts.
SealTexts = Callable[[str, int, bytes], bytes]


@dataclasses.dataclass(slots=True)
class Attempt:
    """One attempt at posting a callback."""

    account: Annotated[str, types.key(20)]
    # `seq` of the callback.
    seq: Annotated[int, sa.BigInteger]
    # Number of the attempt modulo `ATTEMPTS`: a later attempt takes the place of an earlier one.
    slot: Annotated[int, sa.SmallInteger]
    # Number of the attempt, from 1. It starts again with a replay.
    attempt: int
    # Start of the attempt.
    at: types.UnixMilliseconds
    # Milliseconds until the response or the error.
    took: int
    # HTTP status; None without a response.
    status: Annotated[int | None, sa.SmallInteger]
    # Error in words; empty for none.
    error: Annotated[str, types.text(255)]
    # First bytes of the response's content; sealed in the table. None for no content.
    response: Annotated[bytes | None, types.fixed_bytes(RESPONSE_BYTES + 64)] = dataclasses.field(repr=False)


def attempt(
    callback: Callback, number: int, at: int, took: float, status: int | None, *, error: str, response: bytes
) -> Attempt:
    """Return the attempt at a callback.

    number: number of the attempt, from 1
    at: its start, Unix milliseconds
    took: milliseconds
    status: HTTP status; None without a response
    """
    return Attempt(
        callback.account,
        callback.seq,
        number % ATTEMPTS,
        number,
        at,
        int(took),
        status,
        error[:255],
        response[:RESPONSE_BYTES] or None,
    )


attempts = metadata.table_of(Attempt, "callback_attempts", key=("account", "seq", "slot"))


class EndedAttempt(NamedTuple):
    """Callback that the webhook has accepted, and the attempt that it accepted."""

    callback: Callback
    number: int  # number of the attempt; this and the next three are as in `Attempt`
    at: int
    took: int
    status: int
    response: bytes  # first bytes of the response's content, unsealed; empty for no content


class EndedCallback(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Entry of a segment. Fields without a comment are as in `callbacks.Callback`."""

    seq: int
    shard: int  # shard that posted it
    subject: str
    kind: str
    recipient: str  # peer that it is about; empty if unknown
    created_at: int
    request_id: str
    event: str
    attempt: int  # number of the last attempt; this and the next three are as in `Attempt`
    at: int
    took: int
    status: int
    part_index: int  # index in the segment's `texts`
    index_in_part: int

    @property
    def event_id(self) -> str:
        """Return the event id, which is the same for every attempt."""
        return callbacks.event_id(self.seq, self.event)


class EndedTexts(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Texts of one ended callback."""

    body: bytes
    response: bytes  # first bytes of the content of the last response


class SealedPart(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Texts that were sealed together: packed MessagePack of a list of `EndedTexts`."""

    name: int  # name of the segment for which they were sealed
    sealed: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Segment:
    """Callbacks that ended together."""

    account: Annotated[str, types.key(20)]
    # Highest `seq` of the callbacks.
    last_seq: Annotated[int, sa.BigInteger]
    # Lowest `seq` of the callbacks.
    first_seq: Annotated[int, sa.BigInteger]
    # Number of callbacks.
    size: int
    # Start of the latest attempt.
    ended_at: types.UnixMilliseconds
    # 4 bytes for each value by which one of the callbacks can be found.
    fingerprints: bytes = dataclasses.field(repr=False)
    # Packed MessagePack of a list of `EndedCallback`, in the order of `seq`.
    entries: bytes = dataclasses.field(repr=False)
    # MessagePack of a list of `SealedPart`.
    texts: bytes = dataclasses.field(repr=False)


table = metadata.table_of(Segment, "callback_history", key=("account", "last_seq"))

_encode = msgspec.msgpack.Encoder().encode
_decode_list = msgspec.msgpack.Decoder(list[EndedCallback]).decode
_decode_parts = msgspec.msgpack.Decoder(list[SealedPart]).decode
_decode_texts = msgspec.msgpack.Decoder(list[EndedTexts]).decode

_PLACE = attrgetter("callback.account", "callback.shard", "callback.seq")
_ZLIB = b"\x78"  # first byte of what zlib makes, and of no MessagePack of a list


def _pack(items: Sequence[object]) -> bytes:
    """Return the MessagePack of a list, compressed if it is long."""
    encoded = _encode(items)
    return isal_zlib.compress(encoded, 1) if len(encoded) >= PACKED else encoded


def _unpack(packed: bytes) -> bytes:
    return zlib.decompress(packed) if packed.startswith(_ZLIB) else packed


def _decode_entries(packed: bytes) -> list[EndedCallback]:
    return _decode_list(_unpack(packed))


def decode_texts(packed: bytes) -> list[EndedTexts]:
    """Return the texts of a part, which was opened."""
    return _decode_texts(_unpack(packed))


def fingerprints_of(values: Collection[str]) -> bytes:
    """Return 4 bytes for each value: a recipient, kind, event id or message id, by which callbacks are found. Others
    may have the same bytes.
    """
    return struct.pack(f">{len(values)}I", *[zlib.crc32(value.encode("utf-8", "replace")) for value in values])


async def save_attempts(connection: Connection, found: Sequence[Attempt]) -> None:
    """Save attempts, whose responses are sealed. Each takes the place of an earlier one of its slot."""
    await write_instances(connection, insert_or_update(connection, attempts), found)


async def add(connection: Connection, ended: Sequence[EndedAttempt], seal: SealTexts) -> None:
    """Add ended callbacks, which the caller deletes from the queue in the same transaction. Segments that exist stay
    unchanged.
    """
    if ended:
        await _insert(connection, list(segments_of(ended, seal)))


def segments_of(ended: Sequence[EndedAttempt], seal: SealTexts) -> Iterator[Segment]:
    """Yield the segments of these callbacks.

    A segment has callbacks of one shard. So a commit of unknown outcome, which each shard repeats by itself, names the
    same segments again.
    """
    chosen: list[EndedAttempt] = []
    size = 0
    for one in sorted(ended, key=_PLACE):
        callback, first = one.callback, (chosen[0] if chosen else one).callback
        is_apart = callback.account != first.account or callback.shard != first.shard or callback.seq - first.seq > SPAN
        if is_apart or (chosen and size + len(callback.body) > MAX_TEXTS):
            yield _segment(chosen, seal)
            chosen, size = [], 0
        chosen.append(one)
        size += len(callback.body)
    if chosen:
        yield _segment(chosen, seal)


def _segment(ended: Sequence[EndedAttempt], seal: SealTexts) -> Segment:
    first, name = ended[0].callback, ended[-1].callback.seq
    entries: list[tuple[int | str, ...]] = []
    texts: list[tuple[bytes, bytes]] = []
    values: set[str] = set()
    for position, (callback, number, at, took, status, response) in enumerate(ended):
        # As in `EndedCallback` and `EndedTexts`. Tuples are made and encoded faster.
        entries.append(
            (
                callback.seq,
                callback.shard,
                callback.subject,
                callback.kind,
                callback.recipient,
                callback.created_at,
                callback.request_id,
                callback.event,
                number,
                at,
                took,
                status,
                0,
                position,
            )
        )
        texts.append((callback.body, response[:RESPONSE_BYTES]))
        values.update((callback.kind, callback.recipient, callback.event))
        values.add(callback.subject.removeprefix(callbacks.CLOUD_SUBJECT))
    values.discard("")
    return Segment(
        first.account,
        name,
        first.seq,
        len(ended),
        max([one.at for one in ended]),
        fingerprints_of(values),
        _pack(entries),
        _encode([(name, seal(first.account, name, _pack(texts)))]),
    )


async def _insert(connection: Connection, segments: Sequence[Segment]) -> None:
    # Hexadecimal literals are made in a tenth of the time that escaping takes.
    ignore = "ON CONFLICT DO NOTHING"
    if connection.dialect.name != "sqlite":
        ignore = "ON DUPLICATE KEY UPDATE callback_history.size = callback_history.size"
    for one in segments:
        if not one.account.isdigit():
            raise ValueError(f"{one.account!r} is not a number")
        values = ", ".join([f"X'{blob.hex()}'" for blob in (one.fingerprints, one.entries, one.texts)])
        await write_text(
            connection,
            f"INSERT INTO callback_history ({_COLUMNS}) VALUES"  # noqa: S608
            f" ('{one.account}', {one.last_seq}, {one.first_seq}, {one.size}, {one.ended_at}, {values}) {ignore}",
            label=f"INSERT INTO callback_history ({_COLUMNS}) VALUES (…) {ignore}",  # noqa: S608
        )


_COLUMNS = "account, last_seq, first_seq, size, ended_at, fingerprints, entries, texts"


@dataclasses.dataclass(frozen=True, slots=True)
class SegmentEntries:
    """Segment without its texts."""

    last_seq: int
    entries: Sequence[EndedCallback]


async def list_segments(
    connection: Connection,
    account: str,
    *,
    low: int,
    high: int,
    before: int,
    values: Sequence[str] = (),
    limit: int,
) -> Sequence[SegmentEntries]:
    """List the newest segments of an account that may have callbacks with a `seq` from `low` to before `high`.

    before: `last_seq` above the segments, that of the last segment of the previous page; `high + SPAN` for the first
    values: only segments that may have callbacks with each of these recipients, kinds, event ids or message ids
    """
    query = sa.select(table.c.last_seq, table.c.entries).where(
        table.c.account == account,
        table.c.last_seq >= low,
        table.c.last_seq < min(before, high + SPAN, 2**63 - 1),
        table.c.first_seq < high,
    )
    for value in values:
        query = query.where(sa.func.instr(table.c.fingerprints, fingerprints_of((value,))) > 0)
    found = await connection.execute(query.order_by(table.c.last_seq.desc()).limit(limit))
    return [SegmentEntries(row.last_seq, _decode_entries(row.entries)) for row in found]


async def find_floor(connection: Connection, account: str, *, low: int, high: int, count: int) -> int:
    """Return the `last_seq` of the last of the newest `count` segments that end from `low` to before `high`.

    Returns `low` if there are fewer.
    """
    query = sa.select(table.c.last_seq).where(
        table.c.account == account, table.c.last_seq >= low, table.c.last_seq < high
    )
    found = await connection.execute(query.order_by(table.c.last_seq.desc()).limit(1).offset(count - 1))
    return found.scalar() or low


@dataclasses.dataclass(frozen=True, slots=True)
class StoredCallback:
    """Ended callback with the part that has its texts."""

    entry: EndedCallback
    part: SealedPart = dataclasses.field(repr=False)


def _may_have(account: str, seqs: Sequence[int]) -> sa.ColumnElement[bool]:
    """Return the condition of the segments that may have one of these callbacks."""
    ranges = (
        sa.and_(table.c.last_seq >= seq, table.c.last_seq <= min(seq + SPAN, 2**63 - 1), table.c.first_seq <= seq)
        for seq in seqs
    )
    return sa.and_(table.c.account == account, sa.or_(*ranges))


async def list_ended(connection: Connection, account: str, seqs: Sequence[int]) -> set[int]:
    """Return the `seq` of those of these callbacks that the history has."""
    wanted, found = frozenset(seqs), set[int]()
    for some in pages(sorted(wanted), MAX_FOUND):
        for row in await connection.execute(sa.select(table.c.entries).where(_may_have(account, some))):
            found.update(entry.seq for entry in _decode_entries(row.entries) if entry.seq in wanted)
    return found


async def find_all(connection: Connection, account: str, seqs: Sequence[int]) -> Sequence[StoredCallback]:
    """Find those of these callbacks, at most `MAX_FOUND`, that the history has, in the order of `seq`. Callbacks whose
    texts were sealed together share the part.
    """
    found: list[StoredCallback] = []
    query = sa.select(table.c.entries, table.c.texts).where(_may_have(account, seqs))
    for row in await connection.execute(query):
        chosen = [entry for entry in _decode_entries(row.entries) if entry.seq in seqs]
        parts = _decode_parts(row.texts) if chosen else []
        found += [StoredCallback(entry, parts[entry.part_index]) for entry in chosen]
    return sorted(found, key=lambda stored: stored.entry.seq)


async def find(connection: Connection, account: str, seq: int) -> StoredCallback | None:
    """Find an ended callback of an account."""
    return next(iter(await find_all(connection, account, [seq])), None)


@dataclasses.dataclass(frozen=True, slots=True)
class DeletedPage:
    """Result of one page of a deletion."""

    callbacks: int
    is_last: bool


async def delete_page(connection: Connection, account: str, *, until: int, ended_until: int, limit: int) -> DeletedPage:
    """Delete at most `limit` segments of an account, oldest first.

    until: highest `last_seq`
    ended_until: time until which they ended, Unix milliseconds
    """
    query = sa.select(table.c.last_seq, table.c.size).where(
        table.c.account == account, table.c.last_seq <= until, table.c.ended_at <= ended_until
    )
    rows = list(await connection.execute(query.order_by(table.c.last_seq).limit(limit)))
    delete = table.delete().where(table.c.account == account, table.c.last_seq.in_(any_of("seqs")))
    for some in pages([row.last_seq for row in rows]):
        await connection.execute(delete, {"seqs": some})
    return DeletedPage(sum(row.size for row in rows), len(rows) < limit)


@dataclasses.dataclass(frozen=True, slots=True)
class Merge:
    """Small segments and the one that they become."""

    replaced: Sequence[int]  # their `last_seq`, of which the merged segment has the last one
    segment: Segment


@dataclasses.dataclass(frozen=True, slots=True)
class CountedPage:
    """Sizes of consecutive segments."""

    sizes: Sequence[tuple[int, int]]  # `last_seq` and number of callbacks, oldest first


async def count_page(connection: Connection, account: str, *, after: int, limit: int) -> CountedPage:
    """List the sizes of the next `limit` segments of an account with a `last_seq` above `after`."""
    page = sa.select(table.c.last_seq, table.c.size).where(table.c.account == account, table.c.last_seq > after)
    rows = await connection.execute(page.order_by(table.c.last_seq).limit(limit))
    return CountedPage([(row.last_seq, row.size) for row in rows])


async def read_mergeable(
    connection: Connection, account: str, seqs: Sequence[int], *, ended_until: int
) -> Sequence[Merge]:
    """Read those of these segments that ended until `ended_until` (Unix milliseconds), and merge them.

    seqs: their `last_seq`
    """
    query = sa.select(table).where(
        table.c.account == account, table.c.last_seq.in_(any_of("seqs")), table.c.ended_at <= ended_until
    )
    rows = [Segment(*row) for row in await select_paged(connection, query, "seqs", seqs)]
    rows.sort(key=lambda row: row.last_seq)
    return [Merge([one.last_seq for one in group], _merged(group)) for group in _groups(rows) if len(group) > 1]


async def replace(connection: Connection, merge: Merge) -> bool:
    """Replace segments by the merged one. Returns whether it did: False if one was deleted since they were read."""
    segment = merge.segment
    which = (table.c.account == segment.account, table.c.last_seq.in_(merge.replaced))
    if len(list(await connection.execute(sa.select(table.c.last_seq).where(*which)))) < len(merge.replaced):
        return False
    await connection.execute(table.delete().where(*which))
    await _insert(connection, [segment])
    return True


def _groups(rows: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    """Yield consecutive segments that are merged into one each."""
    group: list[Segment] = []
    for row in rows:
        size = sum(one.size for one in group) + row.size
        low = min([row.first_seq, *(one.first_seq for one in group)])
        texts = sum(len(one.texts) for one in group) + len(row.texts)
        if group and (size > MERGED or row.last_seq - low > SPAN or texts > MAX_TEXTS):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _merged(group: Sequence[Segment]) -> Segment:
    entries: list[EndedCallback] = []
    parts: list[SealedPart] = []
    prints: set[bytes] = set()
    for one in group:
        entries += [
            msgspec.structs.replace(entry, part_index=entry.part_index + len(parts))
            for entry in _decode_entries(one.entries)
        ]
        parts += _decode_parts(one.texts)
        prints.update(one.fingerprints[position : position + 4] for position in range(0, len(one.fingerprints), 4))
    entries.sort(key=lambda entry: entry.seq)
    return Segment(
        group[0].account,
        entries[-1].seq,
        entries[0].seq,
        len(entries),
        max(one.ended_at for one in group),
        b"".join(prints),
        _pack(entries),
        _encode(parts),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class SweptAttempts:
    """Result of one page of a sweep."""

    deleted: int
    # `seq` after which the next page starts; None after the last page.
    last: int | None


async def sweep_attempts(
    connection: Connection, account: str, *, after: int, until: int, tried_until: int, limit: int
) -> SweptAttempts:
    """Check the attempts at the next `limit` callbacks after `after`, up to `until`, and delete those made until
    `tried_until` (Unix milliseconds) at callbacks that are no longer in the queue.
    """
    column = attempts.c
    page = sa.select(column.seq).where(column.account == account, column.seq > after, column.seq <= until).distinct()
    seqs = [row.seq for row in await connection.execute(page.order_by(column.seq).limit(limit))]
    queued = sa.select(callbacks.table.c.seq).where(callbacks.table.c.seq.in_(any_of("seqs")))
    left = {row.seq for row in await select_paged(connection, queued, "seqs", seqs)}
    gone = [seq for seq in seqs if seq not in left]
    old = (column.account == account, column.seq.in_(any_of("seqs")), column.at <= tried_until)
    deleted = 0
    for some in pages(gone):
        deleted += (await connection.execute(attempts.delete().where(*old), {"seqs": some})).rowcount
    return SweptAttempts(deleted, seqs[-1] if len(seqs) == limit else None)


async def list_attempts(connection: Connection, account: str, seq: int) -> Sequence[Attempt]:
    """List the attempts at one callback that have rows, in no order."""
    query = sa.select(attempts).where(attempts.c.account == account, attempts.c.seq == seq)
    return [Attempt(*row) for row in await connection.execute(query)]


async def highest_seq(connection: Connection, account: str) -> int:
    """Return the highest `seq` of an account's ended callbacks, 0 when there are none."""
    query = sa.select(sa.func.max(table.c.last_seq)).where(table.c.account == account)
    return int((await connection.execute(query)).scalar_one() or 0)
