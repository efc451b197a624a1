"""Admission of envelopes: those of one pair keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from network.routing.admission import EnvelopeAdmission
from network.routing.mailbox_usage import COUNT_AGAIN, MailboxUsages
from network.routing.quotas import MailboxUsage
from network.settings import Quotas
from tests.manual_clock import ManualClock
from tidings.storage.network.mailbox import WaitingEnvelopes
from tidings.wire import device

SENDER, RECIPIENT = "15550000001", "15550000002"


class EmptyStore:
    """Mailboxes of which none holds an envelope."""

    async def count(self, recipients: Sequence[str]) -> Mapping[str, Sequence[WaitingEnvelopes]]:
        return {}


class Directory:
    """Directory in which all numbers are registered, unknown until they were looked up."""

    known = False

    def get(self, number: str) -> frozenset[str] | None:
        return frozenset() if self.known else None

    def look_up(self, number: str) -> asyncio.Future[frozenset[str] | None]:
        self.known = True
        found: asyncio.Future[frozenset[str] | None] = asyncio.get_running_loop().create_future()
        found.set_result(frozenset())
        return found


async def test_an_envelope_waits_behind_one_of_its_pair_whose_mailbox_is_counted_again() -> None:
    clock = ManualClock()
    accepted: list[str] = []
    done = asyncio.Event()
    mailboxes = MailboxUsages(EmptyStore(), Quotas(share=100, share_bytes=1000), clock)  # type: ignore[arg-type]

    def admit(origin: object, frame: device.Send, usage: MailboxUsage) -> None:
        if mailboxes.take(usage, frame, len(frame.body), clock.monotonic()) is COUNT_AGAIN:
            admission.take(origin, frame)  # type: ignore[arg-type]
            return
        accepted.append(frame.id)
        if len(accepted) == 2:
            done.set()

    # The count is old, and the larger envelope does not fit into it.
    usage = mailboxes.learn(RECIPIENT, ())
    usage.add(usage.of_sender(SENDER, clock.monotonic()), 900)
    clock.advance(100)
    admission = EnvelopeAdmission(Directory(), mailboxes, admit, lambda number: False, limit=10)  # type: ignore[arg-type]
    for frame_id, size in (("first", 500), ("second", 50)):
        frame = device.Send(0, SENDER, RECIPIENT, frame_id, device.MESSAGE, b"x" * size)
        admission.take(None, frame)  # type: ignore[arg-type]
    async with asyncio.timeout(30):
        await done.wait()
    assert accepted == ["first", "second"]
