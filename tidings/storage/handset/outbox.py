"""Envelopes that devices have yet to send, in their order.

The process that runs the fleet assigns positions, which increase with each row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, execute_paged
from tidings.storage.handset.tables import metadata
from tidings.storage.rows import write_instances


@dataclasses.dataclass(frozen=True, slots=True)
class OutboxRow:
    """Envelope to be sent unchanged."""

    fleet: Annotated[str, types.key(40)]
    position: Annotated[int, sa.BigInteger]
    number: Annotated[str, types.key(20)]
    # Empty for an envelope to a group.
    peer: Annotated[str, types.key(20)]
    id: Annotated[str, types.key(64)]
    kind: Annotated[str, types.key(16)]
    # Unix milliseconds before which it is not sent; 0 for at once.
    due_at: types.UnixMilliseconds
    body: bytes
    refs: Annotated[tuple[str, ...], types.words()]
    # Group that it is sent to, or that the messages of a receipt were sent to; empty for none.
    group_id: Annotated[str, types.key(32)] = ""
    # Known epoch of the group that it is sent to.
    epoch: Annotated[int, sa.BigInteger] = 0
    # Sealed plaintext of an envelope to a group, which is encrypted again if the group has changed; None otherwise.
    draft: bytes | None = None


outbox = metadata.table_of(OutboxRow, "handset_outbox", key=("fleet", "position"))
_ADD = outbox.insert()
_DELETE_ENVELOPES = outbox.delete().where(
    outbox.c.fleet == sa.bindparam("of_fleet"), outbox.c.position.in_(any_of("positions"))
)


async def add(connection: AsyncConnection, rows: Sequence[OutboxRow]) -> None:
    """Add envelopes, which are kept until the network has accepted them."""
    await write_instances(connection, _ADD, rows)


async def list_envelopes(connection: AsyncConnection, fleet: str) -> list[OutboxRow]:
    """List all envelopes of a fleet, in order."""
    rows = await connection.execute(sa.select(outbox).where(outbox.c.fleet == fleet).order_by(outbox.c.position))
    return [OutboxRow(*row) for row in rows]


async def delete(connection: AsyncConnection, fleet: str, positions: Sequence[int]) -> None:
    """Delete envelopes that the network has accepted or permanently refused."""
    await execute_paged(connection, _DELETE_ENVELOPES, "positions", positions, of_fleet=fleet)
