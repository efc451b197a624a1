"""Check contacts through the Coreapps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tidings.wire import addresses, core, phone_numbers
from tidings.wire.codes import NOT_FOUND, UNKNOWN_CONTACT
from tidings.wire.ids import MessageIds
from webapp.api.contacts import schemas
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import NumberShardOwners
from webapp.http.errors import InvalidRequest


class CheckRehearsal(Protocol):
    """Effects of test numbers on contact checks, in test mode."""

    async def before_check(self, inputs: Sequence[str]) -> None:
        """Called before inputs are checked. Raises an `APIError`."""
        ...


class ContactChecks:
    """Contact checks and identities, as requests to the Coreapps, which cache and batch them."""

    def __init__(self, coreapps: NumberShardOwners, rehearsal: CheckRehearsal | None = None) -> None:
        """rehearsal: effects of test numbers; `None` outside test mode"""
        self._coreapps = coreapps
        self._rehearsal = rehearsal
        self._ids = MessageIds()

    async def check(self, caller: Caller, request: schemas.Contacts, request_id: str) -> Sequence[dict[str, Any]]:
        """Return one entry per input, in the order of the inputs. Raises the errors of the Coreapp link."""
        if self._rehearsal is not None:
            await self._rehearsal.before_check(request.contacts)
        parts = self._spread(caller, request)
        responses = await asyncio.gather(
            *[self._call(caller, request, places, of, request_id) for of, places in parts.items()]
        )
        found: dict[int, core.Contact] = {}
        for places, contacts in zip(parts.values(), responses, strict=True):
            found.update(zip(places, contacts, strict=True))
        # The inputs are returned as they were sent, even if the Coreapp normalised them.
        return [_entry(sent, found[place]) for place, sent in enumerate(request.contacts)]

    def _spread(self, caller: Caller, request: schemas.Contacts) -> Mapping[str, Sequence[int]]:
        """Group the inputs' positions by shard. Each key is a number of the shard, or empty for the first shard.

        A call that does not wait is not divided: one callback reports all results that arrive later.
        """
        everywhere, owners = range(len(request.contacts)), self._coreapps.of(caller.account)
        if not owners.has_contacts_by_shard or request.blocking != "wait":
            return {"": everywhere}
        numbers: dict[int, str] = {owners.shard_of(""): ""}
        parts: dict[str, list[int]] = {}
        for place in everywhere:
            wa_id = phone_numbers.normalise(request.contacts[place])
            # Any shard can handle an input that is not a number.
            shard = owners.shard_of(wa_id or "")
            parts.setdefault(numbers.setdefault(shard, wa_id or ""), []).append(place)
        return parts

    async def _call(
        self, caller: Caller, request: schemas.Contacts, places: Sequence[int], of: str, request_id: str
    ) -> Sequence[core.Contact]:
        inputs = [request.contacts[place] for place in places]
        call_id = "" if request.blocking == "wait" else self._ids.new()

        def make(n: int) -> core.CheckContacts:
            return core.CheckContacts(
                n=n,
                account=caller.account,
                inputs=inputs,
                wait=request.blocking == "wait",
                force_check=request.force_check,
                request_id=request_id,
                of=of,
                id=call_id,
            )

        if not of:
            return (await self._coreapps.of(caller.account).call_primary_repeatable(make, core.Contacts)).contacts
        return (await self._coreapps.of(caller.account).call_repeatable(of, make, core.Contacts)).contacts

    async def identity(self, caller: Caller, wa_id: str) -> dict[str, Any]:
        """Return the identity of a contact.

        Raises `InvalidRequest` when it is not a contact, and the errors of the Coreapp link.
        """
        digits = _digits(wa_id)
        found = await self._coreapps.of(caller.account).call_repeatable(
            digits, lambda n: core.GetIdentity(n=n, account=caller.account, wa_id=digits), core.Identity
        )
        return {"hash": found.hash, "created_timestamp": found.created_at, "acknowledged": found.acknowledged}

    async def acknowledge(self, caller: Caller, wa_id: str, request: schemas.Acknowledgement) -> None:
        """Acknowledge a contact's identity. The acknowledgement is on disk when this returns.

        Raises the errors of `identity`, and 1009 when the hash is not the present one.
        """
        digits = _digits(wa_id)
        await self._coreapps.of(caller.account).call_repeatable(
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
