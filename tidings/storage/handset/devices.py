"""Devices of a fleet, which is the set that one process runs. Only that process writes their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Annotated

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.database import any_of, save_rows, select_paged
from tidings.storage.handset.tables import metadata


@dataclasses.dataclass(frozen=True, slots=True)
class DeviceRow:
    """Device of one recipient."""

    number: Annotated[str, types.key(20)]
    fleet: Annotated[str, types.key(40)]
    registration_id: int
    # Private identity key, sealed.
    identity: bytes
    # Sealed; None until the device is registered.
    token: bytes | None
    # First id that no pre-key of this device has had.
    next_key_id: int
    # Number that the device has asked the network to block; empty for none.
    blocked: Annotated[str, types.key(20)] = ""


devices = metadata.table_of(
    DeviceRow, "handset_devices", sa.Index("handset_devices_by_fleet", "fleet"), key=("number",)
)


_TAKEN = sa.select(devices).where(devices.c.number.in_(any_of("numbers")), devices.c.fleet != sa.bindparam("of_fleet"))


async def save(connection: AsyncConnection, rows: Sequence[DeviceRow]) -> None:
    """Save devices. Of existing ones only token, next_key_id and blocked change."""
    await save_rows(connection, devices, rows, ("token", "next_key_id", "blocked"))


async def list_devices(connection: AsyncConnection, fleet: str) -> list[DeviceRow]:
    """List all devices of a fleet, by number."""
    rows = await connection.execute(sa.select(devices).where(devices.c.fleet == fleet).order_by(devices.c.number))
    return [DeviceRow(*row) for row in rows]


async def find(connection: AsyncConnection, number: str) -> DeviceRow | None:
    """Find one device of any fleet."""
    row = (await connection.execute(sa.select(devices).where(devices.c.number == number))).first()
    return DeviceRow(*row) if row else None


async def list_taken(connection: AsyncConnection, fleet: str, numbers: Iterable[str]) -> list[DeviceRow]:
    """List the devices of these numbers that other fleets have, by number."""
    rows = await select_paged(connection, _TAKEN, "numbers", numbers, of_fleet=fleet)
    return sorted((DeviceRow(*row) for row in rows), key=lambda row: row.number)


async def list_fleets(connection: AsyncConnection, prefix: str, limit: int) -> list[DeviceRow]:
    """List the devices of the fleets whose names start with `prefix`, by number."""
    chosen = sa.select(devices).where(devices.c.fleet.startswith(prefix, autoescape=True))
    rows = await connection.execute(chosen.order_by(devices.c.number).limit(limit))
    return [DeviceRow(*row) for row in rows]
