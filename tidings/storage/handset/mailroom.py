"""What recipients keep: their keys, their sessions, the messages they got and the envelopes they still have to send.

A fleet is the set of devices that one process runs; it alone writes their rows. Positions are given out by that
process and grow with each row of its fleet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import any_of, insert_or_update
from tidings.storage.handset.tables import devices, inbox, outbox, prekeys, progress, sent, sessions

# Kinds of pre-key. The ids of one device's pre-keys are unique across kinds.
ONE_TIME = "ec"  # deleted in the transaction that stores the session it set up
SIGNED = "signed"
KYBER_ONE_TIME = "kyber"  # deleted like the EC ones
KYBER_LAST = "kyber_last"  # the last resort: used again and again

# Kinds of what is in the inbox.
TEXT = "text"
ANSWER = "text.answer"  # a text that answers another message: its content is the JSON, of TEXT the words
EMPTY = "null"  # completes a key exchange; shown to nobody
UNREADABLE = "undecryptable"  # kept by its id, so that it is acknowledged once and for all
CONTROL = "control"  # what devices tell each other about the keys of a group; shown to nobody

_CHUNK = 1000  # values in one IN (…)


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """One recipient. Identity (the private key) and token are sealed; token is `None` until it is registered.

    next_key_id: the first id that no pre-key of this device has had.
    blocked:     the number that it has asked the network to block; empty for none.
    """

    number: str
    fleet: str
    registration_id: int
    identity: bytes
    token: bytes | None
    next_key_id: int
    blocked: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PreKey:
    """The private part of one pre-key, sealed.

    created_at: Unix milliseconds. retired_at: Unix milliseconds since when nobody new is given it, as far as we know:
    it was replaced, is gone from the network, or is not there yet. 0 for one in use.
    """

    number: str
    key_id: int
    kind: str
    sealed: bytes
    created_at: int = 0
    retired_at: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Session:
    """One session with a peer in its two halves, sealed."""

    number: str
    peer: str
    sending: bytes
    receiving: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """One received message.

    content: the text, the JSON of another type, or why it could not be decrypted; received_at: Unix milliseconds;
    group: that it was sent to, empty for none.
    """

    fleet: str
    position: int
    number: str
    peer: str
    id: str
    kind: str
    received_at: int
    content: str
    group: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Envelope:
    """One envelope to send exactly as it is. Not before due_at, Unix milliseconds (0: at once).

    group: that it goes to, and then there is no peer; or that the messages of a receipt were sent to.
    epoch: of the group that it goes to, as it was known.
    draft: the sealed plaintext of what goes to a group, which is encrypted anew when that has changed.
    """

    fleet: str
    position: int
    number: str
    peer: str
    id: str
    kind: str
    due_at: int
    body: bytes
    refs: tuple[str, ...]
    group: str = ""
    epoch: int = 0
    draft: bytes | None = None


async def save_devices(connection: AsyncConnection, rows: Sequence[Device]) -> None:
    """Keep new devices; of those that are there already, only token, next_key_id and blocked change."""
    if rows:
        statement = insert_or_update(connection, devices, ("number",), ("token", "next_key_id", "blocked"))
        await connection.execute(
            statement,
            [
                {
                    "number": d.number,
                    "fleet": d.fleet,
                    "registration_id": d.registration_id,
                    "identity": d.identity,
                    "token": d.token,
                    "next_key_id": d.next_key_id,
                    "blocked": d.blocked,
                }
                for d in rows
            ],
        )


async def list_devices(connection: AsyncConnection, fleet: str) -> list[Device]:
    """All devices of a fleet, by number."""
    rows = await connection.execute(sa.select(devices).where(devices.c.fleet == fleet).order_by(devices.c.number))
    return [Device(*row) for row in rows]


async def find_device(connection: AsyncConnection, number: str) -> Device | None:
    """One device, of whichever fleet."""
    row = (await connection.execute(sa.select(devices).where(devices.c.number == number))).first()
    return Device(*row) if row else None


async def add_prekeys(connection: AsyncConnection, rows: Sequence[PreKey]) -> None:
    """Keep new pre-keys. Raises `IntegrityError` when an id was used before."""
    if rows:
        await connection.execute(
            prekeys.insert(),
            [dataclasses.asdict(row) for row in rows],
        )


_PREKEYS = sa.select(prekeys).where(prekeys.c.number.in_(any_of("numbers")), prekeys.c.key_id.in_(any_of("ids")))
_DELETE_PREKEYS = prekeys.delete().where(sa.tuple_(prekeys.c.number, prekeys.c.key_id).in_(any_of("pairs")))
_SESSIONS = sa.select(sessions).where(sa.tuple_(sessions.c.number, sessions.c.peer).in_(any_of("pairs")))
_KNOWN = sa.select(inbox.c.number, inbox.c.peer, inbox.c.id).where(inbox.c.id.in_(any_of("ids")))
_DELETE_ENVELOPES = outbox.delete().where(
    outbox.c.fleet == sa.bindparam("of_fleet"), outbox.c.position.in_(any_of("positions"))
)


async def list_prekeys(connection: AsyncConnection, wanted: Iterable[tuple[str, int]]) -> list[PreKey]:
    """Those of these (number, key id) that are still there."""
    asked = set(wanted)
    numbers, ids = sorted({number for number, _ in asked}), sorted({key_id for _, key_id in asked})
    found: list[PreKey] = []
    for start in range(0, len(numbers), _CHUNK):
        for first in range(0, len(ids), _CHUNK):
            rows = await connection.execute(
                _PREKEYS, {"numbers": numbers[start : start + _CHUNK], "ids": ids[first : first + _CHUNK]}
            )
            found += [PreKey(*row) for row in rows if (row[0], row[1]) in asked]
    return found


async def delete_prekeys(connection: AsyncConnection, used: Iterable[tuple[str, int]]) -> None:
    """Forget these (number, key id)."""
    pairs = list(used)
    for start in range(0, len(pairs), _CHUNK // 2):
        await connection.execute(_DELETE_PREKEYS, {"pairs": pairs[start : start + _CHUNK // 2]})


async def save_sessions(connection: AsyncConnection, rows: Sequence[Session]) -> None:
    """Keep sessions, new or changed."""
    if rows:
        statement = insert_or_update(connection, sessions, ("number", "peer"), ("sending", "receiving"))
        await connection.execute(
            statement,
            [{"number": s.number, "peer": s.peer, "sending": s.sending, "receiving": s.receiving} for s in rows],
        )


async def list_sessions(connection: AsyncConnection, wanted: Iterable[tuple[str, str]]) -> list[Session]:
    """Those of these (number, peer) that exist."""
    asked = list(wanted)
    found: list[Session] = []
    for start in range(0, len(asked), _CHUNK // 2):
        pairs = asked[start : start + _CHUNK // 2]
        rows = await connection.execute(_SESSIONS, {"pairs": pairs})
        found += [Session(*row) for row in rows]
    return found


async def delete_sessions(connection: AsyncConnection, gone: Iterable[tuple[str, str]]) -> None:
    """Forget the sessions of these (number, peer)."""
    pairs = list(gone)
    for start in range(0, len(pairs), _CHUNK // 2):
        await connection.execute(
            sessions.delete().where(
                sa.tuple_(sessions.c.number, sessions.c.peer).in_(pairs[start : start + _CHUNK // 2])
            )
        )


async def add_messages(connection: AsyncConnection, rows: Sequence[Message]) -> None:
    """Keep received messages. Raises `IntegrityError` when a (number, peer, id) is there already."""
    if rows:
        await connection.execute(
            inbox.insert(),
            [
                {
                    "fleet": m.fleet,
                    "position": m.position,
                    "number": m.number,
                    "peer": m.peer,
                    "id": m.id,
                    "kind": m.kind,
                    "received_at": m.received_at,
                    "content": m.content,
                    "group_id": m.group,
                }
                for m in rows
            ],
        )


async def list_known(connection: AsyncConnection, ids: Sequence[str]) -> set[tuple[str, str, str]]:
    """The (number, peer, id) of received messages with these ids."""
    found: set[tuple[str, str, str]] = set()
    for start in range(0, len(ids), _CHUNK):
        rows = await connection.execute(_KNOWN, {"ids": ids[start : start + _CHUNK]})
        found.update((row[0], row[1], row[2]) for row in rows)
    return found


_KINDS = sa.select(inbox.c.number, inbox.c.peer, inbox.c.id, inbox.c.kind, inbox.c.received_at).where(
    inbox.c.id.in_(any_of("ids"))
)
_DELETE_UNREADABLE = inbox.delete().where(
    inbox.c.kind == UNREADABLE, sa.tuple_(inbox.c.id, inbox.c.number, inbox.c.peer).in_(any_of("keys"))
)


async def list_kinds(connection: AsyncConnection, ids: Sequence[str]) -> dict[tuple[str, str, str], tuple[str, int]]:
    """Of the received messages with these ids, by (number, peer, id): the kind, and when they were received."""
    found: dict[tuple[str, str, str], tuple[str, int]] = {}
    for start in range(0, len(ids), _CHUNK):
        rows = await connection.execute(_KINDS, {"ids": ids[start : start + _CHUNK]})
        found.update(((row[0], row[1], row[2]), (row[3], row[4])) for row in rows)
    return found


async def delete_unreadable(connection: AsyncConnection, keys: Sequence[tuple[str, str, str]]) -> None:
    """Make room for messages that could not be decrypted before, by (number, peer, id)."""
    for start in range(0, len(keys), _CHUNK // 3):
        page = [(id_, number, peer) for number, peer, id_ in keys[start : start + _CHUNK // 3]]
        await connection.execute(_DELETE_UNREADABLE, {"keys": page})


async def list_recent(connection: AsyncConnection, fleet: str, limit: int) -> list[tuple[str, str, str]]:
    """The (number, peer, id) of a fleet's last messages, newest first."""
    rows = await connection.execute(
        sa.select(inbox.c.number, inbox.c.peer, inbox.c.id)
        .where(inbox.c.fleet == fleet)
        .order_by(inbox.c.position.desc())
        .limit(limit)
    )
    return [(row[0], row[1], row[2]) for row in rows]


async def list_messages(connection: AsyncConnection, fleet: str, after: int, limit: int) -> list[Message]:
    """A fleet's messages behind a position, in order."""
    rows = await connection.execute(
        sa.select(inbox).where(inbox.c.fleet == fleet, inbox.c.position > after).order_by(inbox.c.position).limit(limit)
    )
    return [Message(*row) for row in rows]


async def delete_messages_before(connection: AsyncConnection, fleet: str, time: int, shown: int) -> int:
    """Forget messages received before `time` (Unix milliseconds) at positions up to `shown`; returns how many."""
    result = await connection.execute(
        inbox.delete().where(inbox.c.fleet == fleet, inbox.c.position <= shown, inbox.c.received_at < time)
    )
    return result.rowcount


async def add_envelopes(connection: AsyncConnection, rows: Sequence[Envelope]) -> None:
    """Keep envelopes until the network has accepted them."""
    if rows:
        await connection.execute(
            outbox.insert(),
            [
                {
                    "fleet": e.fleet,
                    "position": e.position,
                    "number": e.number,
                    "peer": e.peer,
                    "id": e.id,
                    "kind": e.kind,
                    "due_at": e.due_at,
                    "body": e.body,
                    "refs": " ".join(e.refs),
                    "group_id": e.group,
                    "epoch": e.epoch,
                    "draft": e.draft,
                }
                for e in rows
            ],
        )


async def list_envelopes(connection: AsyncConnection, fleet: str) -> list[Envelope]:
    """Everything that a fleet still has to send, in order."""
    rows = await connection.execute(sa.select(outbox).where(outbox.c.fleet == fleet).order_by(outbox.c.position))
    return [
        Envelope(
            e.fleet, e.position, e.number, e.peer, e.id, e.kind, e.due_at, e.body, tuple(e.refs.split()),
            e.group_id, e.epoch, e.draft,
        )
        for e in rows
    ]  # fmt: skip


async def delete_envelopes(connection: AsyncConnection, fleet: str, positions: Sequence[int]) -> None:
    """Forget envelopes that the network has accepted or refused for good."""
    for start in range(0, len(positions), _CHUNK):
        await connection.execute(_DELETE_ENVELOPES, {"of_fleet": fleet, "positions": positions[start : start + _CHUNK]})


async def save_shown(connection: AsyncConnection, fleet: str, position: int) -> None:
    """Everything of this fleet up to `position` has been shown."""
    statement = insert_or_update(connection, progress, ("fleet",), ("shown",))
    await connection.execute(statement, [{"fleet": fleet, "shown": position}])


async def find_positions(connection: AsyncConnection, fleet: str) -> tuple[int, int, int]:
    """The last position of a fleet's inbox and of what it sent, and up to which position it has shown; 0 for none."""
    row = (
        await connection.execute(
            sa.select(
                sa.select(sa.func.max(inbox.c.position)).where(inbox.c.fleet == fleet).scalar_subquery(),
                sa.select(sa.func.max(outbox.c.position)).where(outbox.c.fleet == fleet).scalar_subquery(),
                sa.select(sa.func.max(sent.c.position)).where(sent.c.fleet == fleet).scalar_subquery(),
                sa.select(progress.c.shown).where(progress.c.fleet == fleet).scalar_subquery(),
            )
        )
    ).one()
    return row[0] or 0, max(row[1] or 0, row[2] or 0), row[3] or 0
