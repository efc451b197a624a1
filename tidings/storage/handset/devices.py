"""Devices of a fleet: the set that one process runs, which alone writes their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.database import insert_or_update
from tidings.storage.handset.tables import devices


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRow:
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


async def save(connection: AsyncConnection, rows: Sequence[DeviceRow]) -> None:
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


async def list_devices(connection: AsyncConnection, fleet: str) -> list[DeviceRow]:
    """All devices of a fleet, by number."""
    rows = await connection.execute(sa.select(devices).where(devices.c.fleet == fleet).order_by(devices.c.number))
    return [DeviceRow(*row) for row in rows]


async def find(connection: AsyncConnection, number: str) -> DeviceRow | None:
    """One device, of whichever fleet."""
    row = (await connection.execute(sa.select(devices).where(devices.c.number == number))).first()
    return DeviceRow(*row) if row else None
