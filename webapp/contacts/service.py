"""Checking contacts with the Coreapp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidings.wire import addresses, core
from tidings.wire.codes import NOT_FOUND, UNKNOWN_CONTACT
from webapp.contacts import schemas
from webapp.coreapps import ShardOwners
from webapp.errors import InvalidRequest
from webapp.tokens import Caller


class ContactChecks:
    """Asks the Coreapp, which remembers and batches."""

    def __init__(self, coreapps: ShardOwners) -> None:
        self._coreapps = coreapps

    async def check(self, caller: Caller, request: schemas.Contacts, request_id: str) -> Sequence[dict[str, Any]]:
        """One entry for each input, in their order. Raises what the Coreapp link raises."""
        answer = await self._coreapps.ask_first_safely(
            lambda n: core.CheckContacts(
                n=n,
                account=caller.account,
                inputs=request.contacts,
                wait=request.blocking == "wait",
                force_check=request.force_check,
                request_id=request_id,
            ),
            core.Contacts,
        )
        # The inputs as they were sent, whatever the Coreapp made of them.
        return [_entry(sent, contact) for sent, contact in zip(request.contacts, answer.contacts, strict=True)]

    async def identity(self, caller: Caller, wa_id: str) -> dict[str, Any]:
        """The identity of a contact. Raises `InvalidRequest` for no contact, and what the Coreapp link raises."""
        digits = _digits(wa_id)
        found = await self._coreapps.ask_safely(
            digits, lambda n: core.GetIdentity(n=n, account=caller.account, wa_id=digits), core.Identity
        )
        return {"hash": found.hash, "created_timestamp": found.created_at, "acknowledged": found.acknowledged}

    async def acknowledge(self, caller: Caller, wa_id: str, request: schemas.Acknowledgement) -> None:
        """The acknowledgement is on disk when this returns.

        Raises as `identity`, and 1009 for another hash than the present one.
        """
        digits = _digits(wa_id)
        await self._coreapps.ask_safely(
            digits,
            lambda n: core.AcknowledgeIdentity(n=n, account=caller.account, wa_id=digits, hash=request.hash),
            core.Done,
        )


def _digits(wa_id: str) -> str:
    digits = wa_id.removeprefix("+")
    if not addresses.is_wa_id(digits):
        raise InvalidRequest.because(NOT_FOUND, UNKNOWN_CONTACT)
    return digits


def _entry(sent: str, contact: core.Contact) -> dict[str, Any]:
    entry = {"input": sent, "status": contact.status}
    if contact.wa_id:
        entry["wa_id"] = contact.wa_id
    return entry
