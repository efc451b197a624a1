"""Checking contacts with the Coreapp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from tidings.wire import core
from webapp.contacts import schemas
from webapp.coreapp_link import Make
from webapp.tokens import Caller


class AskFirst(Protocol):
    """The Coreapp that checks contacts."""

    async def ask_first(self, make: Make, expect: type[core.Contacts]) -> core.Contacts: ...


class Contacts:
    """Asks the Coreapp, which remembers and batches."""

    def __init__(self, coreapps: AskFirst) -> None:
        self._coreapps = coreapps

    async def check(self, caller: Caller, request: schemas.Contacts, request_id: str) -> Sequence[dict[str, Any]]:
        """One entry for each input, in their order. Raises what the Coreapp link raises."""
        answer = await self._coreapps.ask_first(
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


def _entry(sent: str, contact: core.Contact) -> dict[str, Any]:
    entry = {"input": sent, "status": contact.status}
    if contact.wa_id:
        entry["wa_id"] = contact.wa_id
    return entry
