"""Numbers that send through the real Cloud API instead of the network. A number without a row uses the network."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business import certificates, changes, jobs, shards
from tidings.storage.business.numbers import BusinessNumber
from tidings.storage.business.tables import metadata
from tidings.storage.database import save_rows

# Characters of a fault that are stored.
MAX_FAULT = 255


class JobsPending(Exception):
    """Messages of the number are unsent. Wait until they are sent, or purge them."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} messages are unsent")
        self.count = count


@dataclasses.dataclass(frozen=True, slots=True)
class Upstream:
    """Phone number of the real Cloud API that a number of the installation sends through."""

    account: Annotated[str, types.key(20)]  # number of the installation
    base_url: Annotated[str, types.text(255)]  # with the version, such as `https://graph.facebook.com/v25.0`
    phone_number_id: Annotated[str, types.key(20)]
    waba_id: Annotated[str, types.key(20)]
    rate: int  # messages per second
    # Why the number is stopped, as far as is known; empty while it works.
    fault: Annotated[str, types.text(255)]
    changed_at: types.UnixMilliseconds


table = metadata.table_of(Upstream, "upstreams", key=("account",))


async def find(connection: AsyncConnection, account: str) -> Upstream | None:
    """Find the upstream of a number; None for one that uses the network."""
    row = (await connection.execute(sa.select(table).where(table.c.account == account))).first()
    return Upstream(*row) if row is not None else None


async def exists(connection: AsyncConnection, account: str) -> bool:
    """Return whether a number sends through the Cloud API."""
    return await find(connection, account) is not None


async def list_all(connection: AsyncConnection) -> Sequence[Upstream]:
    """List the upstreams of all numbers that have one."""
    return [Upstream(*row) for row in await connection.execute(sa.select(table).order_by(table.c.account))]


async def attach(connection: AsyncConnection, number: BusinessNumber, upstream: Upstream, sealed: bytes) -> None:
    """Send a number's messages through an upstream, or change the one that it has.

    Raises `JobsPending` if the number used the network and has unsent messages, or if another URL or phone number is to
    send those whose post has begun; nothing is changed then.

    sealed: credentials, sealed under the settings key as `certificates.CLOUD_UPSTREAM`
    """
    await _lock_shards(connection, number)
    present = await find(connection, number.number)
    if present is None:
        await _suspend(connection, number)
    elif (present.base_url, present.phone_number_id) != (upstream.base_url, upstream.phone_number_id):
        await _suspend(connection, number, jobs.table.c.state == jobs.JobForm.POSTED)
    await save_rows(connection, table, [upstream])
    await certificates.set_certificate(connection, number.number, certificates.CLOUD_UPSTREAM, sealed)
    await changes.note(connection, changes.UPSTREAMS)


async def detach(connection: AsyncConnection, number: BusinessNumber) -> bool:
    """Send a number's messages through the network. Returns whether it had an upstream. Raises `JobsPending`."""
    await _lock_shards(connection, number)
    if await find(connection, number.number) is None:
        return False
    await _suspend(connection, number)
    await connection.execute(table.delete().where(table.c.account == number.number))
    await certificates.delete_certificate(connection, number.number, certificates.CLOUD_UPSTREAM)
    await changes.note(connection, changes.UPSTREAMS)
    return True


async def set_fault(connection: AsyncConnection, account: str, fault: str) -> None:
    """Record why a number is stopped; empty when it works again."""
    mine = (table.c.account == account, table.c.fault != fault[:MAX_FAULT])
    changed = await connection.execute(table.update().where(*mine).values(fault=fault[:MAX_FAULT]))
    if changed.rowcount:
        await changes.note(connection, changes.UPSTREAMS)


async def _lock_shards(connection: AsyncConnection, number: BusinessNumber) -> None:
    """Lock the shards of a number until the transaction ends. Every commit of their owners writes these rows, so that
    no job is added before its end. Must be the first statement, so that the later ones see all earlier commits.
    """
    of_number = shards.of_block(number.shard_block)
    await connection.execute(sa.select(shards.table.c.shard).where(of_number).with_for_update())


async def _suspend(connection: AsyncConnection, number: BusinessNumber, *blocking: sa.ColumnElement[bool]) -> None:
    """Make the owners of a number's shards claim them again before their next commit, because they opened them for the
    other way of sending. Raises `JobsPending`.

    blocking: conditions of the jobs that must have ended; none for all
    """
    of_jobs = sa.select(sa.func.count()).where(shards.of_block(number.shard_block, jobs.table.c.shard), *blocking)
    pending = (await connection.execute(of_jobs.select_from(jobs.table))).scalar_one()
    if pending:
        raise JobsPending(pending)
    of_number = shards.of_block(number.shard_block)
    await connection.execute(shards.table.update().where(of_number).values(epoch=shards.table.c.epoch + 1))
