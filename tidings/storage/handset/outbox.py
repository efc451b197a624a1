"""Envelopes that devices still have to send, in their order.

Positions are given out by the process that runs the fleet and grow with each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import any_of, pages
from tidings.storage.handset.tables import outbox
from tidings.storage.rows import write_rows

_DELETE_ENVELOPES = outbox.delete().where(
    outbox.c.fleet == sa.bindparam("of_fleet"), outbox.c.position.in_(any_of("positions"))
)


@dataclasses.dataclass(frozen=True, slots=True)
class OutboxRow:
    """One envelope to send exactly as it is. Not before due_at, Unix milliseconds (0: at once).

    group: that it goes to, and then there is no peer; or that the messages of a receipt were sent to.
    epoch: of the group that it goes to, as it was known.
    draft: the sealed plaintext of what goes to a group, which is encrypted again when that has changed.
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


_ADD = outbox.insert()


async def add(connection: AsyncConnection, rows: Sequence[OutboxRow]) -> None:
    """Keep envelopes until the network has accepted them."""
    if rows:
        await write_rows(
            connection,
            _ADD,
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


async def list_envelopes(connection: AsyncConnection, fleet: str) -> list[OutboxRow]:
    """Everything that a fleet still has to send, in order."""
    rows = await connection.execute(sa.select(outbox).where(outbox.c.fleet == fleet).order_by(outbox.c.position))
    return [
        OutboxRow(
            e.fleet, e.position, e.number, e.peer, e.id, e.kind, e.due_at, e.body, tuple(e.refs.split()),
            e.group_id, e.epoch, e.draft,
        )
        for e in rows
    ]  # fmt: skip


async def delete(connection: AsyncConnection, fleet: str, positions: Sequence[int]) -> None:
    """Forget envelopes that the network has accepted or refused for good."""
    for page in pages(positions):
        await connection.execute(_DELETE_ENVELOPES, {"of_fleet": fleet, "positions": page})
