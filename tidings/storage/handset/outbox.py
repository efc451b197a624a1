"""Envelopes that devices have yet to send, in their order.

The process that runs the fleet assigns positions, which increase with each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import any_of, execute_paged
from tidings.storage.handset.tables import outbox
from tidings.storage.rows import write_rows

_DELETE_ENVELOPES = outbox.delete().where(
    outbox.c.fleet == sa.bindparam("of_fleet"), outbox.c.position.in_(any_of("positions"))
)


@dataclasses.dataclass(frozen=True, slots=True)
class OutboxRow:
    """Envelope to be sent unchanged."""

    fleet: str
    position: int
    number: str
    # Empty for an envelope to a group.
    peer: str
    id: str
    kind: str
    # Unix milliseconds before which it is not sent; 0 for at once.
    due_at: int
    body: bytes
    refs: tuple[str, ...]
    # Group that it is sent to, or that the messages of a receipt were sent to; empty for none.
    group: str = ""
    # Known epoch of the group that it is sent to.
    epoch: int = 0
    # Sealed plaintext of an envelope to a group, which is encrypted again if the group has changed; None otherwise.
    draft: bytes | None = None


_ADD = outbox.insert()


async def add(connection: AsyncConnection, rows: Sequence[OutboxRow]) -> None:
    """Add envelopes, which are kept until the network has accepted them."""
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
    """List all envelopes of a fleet, in order."""
    rows = await connection.execute(sa.select(outbox).where(outbox.c.fleet == fleet).order_by(outbox.c.position))
    return [
        OutboxRow(
            e.fleet, e.position, e.number, e.peer, e.id, e.kind, e.due_at, e.body, tuple(e.refs.split()),
            e.group_id, e.epoch, e.draft,
        )
        for e in rows
    ]  # fmt: skip


async def delete(connection: AsyncConnection, fleet: str, positions: Sequence[int]) -> None:
    """Delete envelopes that the network has accepted or permanently refused."""
    await execute_paged(connection, _DELETE_ENVELOPES, "positions", positions, of_fleet=fleet)
