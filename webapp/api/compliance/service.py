"""Store and return the compliance information of a business."""

from __future__ import annotations

import logging

from tidings.storage.business import profiles
from tidings.storage.business.profiles import ComplianceContact, ComplianceOfficer, StoredCompliance
from tidings.storage.database import Database
from webapp.api.compliance import schemas
from webapp.auth.tokens import Caller

log = logging.getLogger(__name__)


class ComplianceInfo:
    """Compliance information of the caller's account."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, caller: Caller) -> StoredCompliance:
        """Return the compliance information. Values that were not set are empty."""
        async with self._database.reading() as connection:
            return await profiles.find_compliance(connection, caller.account) or StoredCompliance()

    async def set(self, caller: Caller, given: schemas.Compliance) -> None:
        """Replace the compliance information."""
        kept = as_kept(given)
        await self._database.persist(
            lambda connection: profiles.set_compliance(connection, caller.account, kept), retry_seconds=5.0
        )
        log.info("compliance.changed", extra={"username": caller.username})


def as_kept(given: schemas.Compliance) -> StoredCompliance:
    """Convert checked fields to the form in which they are stored."""
    care, officer = given.customer_care_details, given.grievance_officer_details
    return StoredCompliance(
        given.entity_name,
        given.entity_type,
        given.entity_type_custom or "",
        given.is_registered is not False,
        ComplianceContact(care.email or "", care.landline_number or "", care.mobile_number or ""),
        ComplianceOfficer(
            officer.email or "", officer.landline_number or "", officer.mobile_number or "", officer.name
        ),
    )
