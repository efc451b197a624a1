"""Contacts calls that do not wait, from their acceptance to the callback with their results.

A call is in memory only: a commit before its response would cost clients that check each recipient a quarter of their
rate. A killed Coreapp loses the callbacks of its calls. A call that a Webapp repeats because it got no response has one
callback, or after a kill two with the same event id.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.journal.change import Change
from coreapp.webhook import bodies
from coreapp.webhook.queue import CallbackAdmission
from tidings.aio import service
from tidings.aio.batcher import BatcherClosed, BatcherFull
from tidings.aio.lru import LRU
from tidings.storage.business import callbacks
from tidings.storage.business.callbacks import Callback
from tidings.wire import core

log = logging.getLogger(__name__)

REMEMBERED = 10_000  # calls whose repetition is recognised

# Returns the network's results of numbers; those that could not be checked are omitted. Raises `RequestRefused`.
CheckNumbers = Callable[[Sequence[str]], Awaitable[Mapping[str, bool]]]


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """Call whose numbers are being checked."""

    id: str  # the Webapp's id of the call; empty for none
    inputs: Sequence[tuple[str, str | None]]  # the numbers as they were sent, and normalised
    request_id: str


@dataclasses.dataclass(eq=False, repr=False)
class ContactCalls:
    """Calls of one shard."""

    context: ShardContext
    admission: CallbackAdmission  # admission of callbacks with results
    check: CheckNumbers

    def __post_init__(self) -> None:
        # Calls that have no result yet, by number.
        self._pending: collections.Counter[str] = collections.Counter()
        self._known: LRU[str, bool] = LRU(REMEMBERED)  # by the Webapp's id of a call
        self._tasks: set[asyncio.Task[None]] = set()

    def is_pending(self, wa_id: str) -> bool:
        """Return whether a call has requested this number and has no result yet."""
        return wa_id in self._pending

    def accept(
        self, call_id: str, inputs: Sequence[tuple[str, str | None]], missing: Sequence[str], request_id: str
    ) -> None:
        """Accept a call, unless it was accepted before. Raises `RequestRefused`.

        call_id: the Webapp's id of the call, the same in repetitions; empty for none
        inputs: the numbers as they were sent, and normalised
        missing: the normalised numbers
        """
        if call_id and call_id in self._known:
            return
        self.admission.require_room()
        if call_id:
            self._known.put(call_id, True)
        self._pending.update(missing)
        task = asyncio.create_task(self._check_and_report(_Call(call_id, inputs, request_id), missing))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Report the calls without results as failed."""
        await service.cancel(self._tasks)

    async def _check_and_report(self, call: _Call, missing: Sequence[str]) -> None:
        known: Mapping[str, bool] = {}
        try:
            known = await self.check(missing)
        except RequestRefused:
            pass
        finally:
            self._pending.subtract(missing)
            for wa_id in missing:
                if not self._pending[wa_id]:
                    del self._pending[wa_id]
            # `close` cancels the check, so that the numbers are reported as failed.
            self._report(call, known)

    def _report(self, call: _Call, known: Mapping[str, bool]) -> None:
        """Put the callback with the results into the journal."""

        def failed(error: str) -> None:
            log.warning("contacts.not_reported", extra={"numbers": len(call.inputs), "error": error})

        def committed(writing: asyncio.Future[None]) -> None:
            if not writing.cancelled() and (error := writing.exception()) is not None:
                failed(repr(error))

        if self.admission.is_full():
            failed("no webhook URL is set")
            return
        change = Change(self.context.account, new_callbacks=(self._result(call, known),))
        try:
            self.context.journal.put(change, urgent=True).add_done_callback(committed)
        except (BatcherFull, BatcherClosed) as error:
            failed(repr(error))

    def _result(self, call: _Call, known: Mapping[str, bool]) -> Callback:
        now = self.context.now()
        found = []
        for text, wa_id in call.inputs:
            contact = describe(text, wa_id, known, "failed")
            entry = {"input": contact.input, "status": contact.status}
            found.append(entry | {"wa_id": contact.wa_id} if contact.wa_id else entry)
        result = self.context.callback(
            f"contacts:{call.id or now}", "contact_change", bodies.contacts(found), request_id=call.request_id, at=now
        )
        if call.id:
            result.event = callbacks.event_of(f"contacts {self.context.account} {call.id}".encode())
        return result


def describe(text: str, wa_id: str | None, known: Mapping[str, bool], pending: str) -> core.Contact:
    """Return the result for one input.

    pending: status of a number without a result
    """
    if wa_id is None:
        return core.Contact(text, "invalid")
    registered = known.get(wa_id)
    if registered is None:
        return core.Contact(text, pending)
    return core.Contact(text, "valid", wa_id) if registered else core.Contact(text, "invalid")
