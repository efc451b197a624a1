"""Profile of a number as recipients see it: about text, photo and business profile."""

from __future__ import annotations

import dataclasses

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage import types
from tidings.storage.business.tables import metadata
from tidings.storage.database import insert_or_ignore

# `photo_type` and `photo` are empty without a photo; `business` is a `StoredProfile` as JSON; `compliance` is a
# `StoredCompliance` as JSON.
table = metadata.table(
    "profiles",
    sa.Column("account", types.key(20), primary_key=True),
    sa.Column("about", types.text(255), nullable=False),
    sa.Column("photo_type", types.key(32), nullable=False),
    sa.Column("photo", types.blob(), nullable=False),
    sa.Column("business", types.long_text(), nullable=False),
    sa.Column("compliance", types.long_text(), nullable=True),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Photo:
    """Profile photo."""

    # "image/jpeg" or "image/png".
    type: str
    content: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class StoredProfile:
    """Business profile; fields are named as in the API."""

    address: str = ""
    description: str = ""
    email: str = ""
    vertical: str = ""
    websites: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ComplianceContact:
    """Contact details; fields are named as in the API and empty when unknown."""

    email: str = ""
    landline_number: str = ""
    mobile_number: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ComplianceOfficer(ComplianceContact):
    """Grievance officer, who receives complaints."""

    name: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class StoredCompliance:
    """Legal entity; fields are named as in the API."""

    entity_name: str = ""
    entity_type: str = ""
    entity_type_custom: str = ""
    is_registered: bool = False
    customer_care_details: ComplianceContact = ComplianceContact()
    grievance_officer_details: ComplianceOfficer = ComplianceOfficer()


async def find_about(connection: AsyncConnection, account: str) -> str:
    """Find the about text; empty when none is set."""
    about = (await connection.execute(sa.select(table.c.about).where(table.c.account == account))).scalar()
    return about or ""


async def set_about(connection: AsyncConnection, account: str, about: str) -> None:
    """Set the about text."""
    await _change(connection, account, about=about)


async def find_photo(connection: AsyncConnection, account: str) -> Photo | None:
    """Find the photo."""
    query = sa.select(table.c.photo_type, table.c.photo).where(table.c.account == account, table.c.photo_type != "")
    row = (await connection.execute(query)).first()
    return Photo(row.photo_type, bytes(row.photo)) if row is not None else None


async def has_photo(connection: AsyncConnection, account: str) -> bool:
    """Return whether there is a photo, without reading it."""
    query = sa.select(table.c.account).where(table.c.account == account, table.c.photo_type != "")
    return (await connection.execute(query)).first() is not None


async def set_photo(connection: AsyncConnection, account: str, photo: Photo | None) -> None:
    """Set the photo; None removes it."""
    await _change(connection, account, photo_type=photo.type if photo else "", photo=photo.content if photo else b"")


async def find_business(connection: AsyncConnection, account: str) -> StoredProfile:
    """Find the business profile; its fields are empty when not set."""
    return _decode((await connection.execute(sa.select(table.c.business).where(table.c.account == account))).scalar())


async def lock_business(connection: AsyncConnection, account: str) -> StoredProfile:
    """Return the business profile, which other transactions cannot change until this one ends."""
    await _ensure_row(connection, account)
    query = sa.select(table.c.business).where(table.c.account == account).with_for_update()
    return _decode((await connection.execute(query)).scalar())


async def set_business(connection: AsyncConnection, account: str, profile: StoredProfile) -> None:
    """Set the business profile."""
    await _change(connection, account, business=msgspec.json.encode(profile).decode())


async def find_compliance(connection: AsyncConnection, account: str) -> StoredCompliance | None:
    """Find the legal information about the business; None when not set."""
    document = (await connection.execute(sa.select(table.c.compliance).where(table.c.account == account))).scalar()
    return None if document is None else msgspec.json.decode(document, type=StoredCompliance)


async def set_compliance(connection: AsyncConnection, account: str, compliance: StoredCompliance | None) -> None:
    """Set the legal information about the business; None removes it."""
    kept = None if compliance is None else msgspec.json.encode(compliance).decode()
    await _change(connection, account, compliance=kept)


async def _change(connection: AsyncConnection, account: str, **values: object) -> None:
    await _ensure_row(connection, account)
    await connection.execute(table.update().where(table.c.account == account).values(**values))


async def _ensure_row(connection: AsyncConnection, account: str) -> None:
    empty = {"account": account, "about": "", "photo_type": "", "photo": b"", "business": "{}", "compliance": None}
    await connection.execute(insert_or_ignore(connection, table), [empty])


def _decode(document: str | None) -> StoredProfile:
    return StoredProfile() if document is None else msgspec.json.decode(document, type=StoredProfile)
