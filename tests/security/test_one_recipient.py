"""One registered device against the business: undecryptable messages, made to be expensive or very many."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Sequence

from tests.security.attack import Attack
from tests.security.figures import Form
from tests.security.scene import Target
from tidings.client.memory_device import MemoryDevice
from tidings.e2ee import messages, pq_ratchet
from tidings.wire import content, device
from tidings.wire.content import NULL_CONTENT

BUSINESS = "15550000000"
FAR = 24_000  # messages that are skipped; a jump of more than 25,000 is not followed
# If 300 of them were walked for 0.15 to 0.3 s each, another recipient's `read` would wait for minutes.
FORGED = 300
GARBAGE = b"\x33no message at all"
# Errors per sender and hour that the webhook gets about single messages. The others are reported as a number.
ERRORS = 10

_numbers = (f"1555019{n:04}" for n in itertools.count(100))


class Forger(MemoryDevice):
    """Device that has a session with the business, and joins each session that the business opens in its place."""

    def __init__(self, url: str) -> None:
        super().__init__(url, next(_numbers))
        self.online = asyncio.Event()
        self.taken = 0
        self._own_ids: set[str] = set()
        self._settled = asyncio.Event()
        self._ids = itertools.count()

    def ready(self) -> None:
        self.online.set()

    def accepted(self, sent: Sequence[str]) -> None:
        super().accepted(sent)
        self.taken += len(self._own_ids.intersection(sent))
        self._own_ids.difference_update(sent)
        self._settled.set()

    def refused(self, sent: str, reason: str, detail: str) -> None:
        super().refused(sent, reason, detail)
        self._own_ids.discard(sent)
        self._settled.set()

    async def settled(self) -> None:
        """Wait until everything that it sent was accepted or refused."""
        while self._own_ids or self._unanswered:
            self._settled.clear()
            await self._settled.wait()

    def forge(self) -> None:
        """Send one message on the session that the business regards as the current one."""
        sending = self._sessions[BUSINESS]._sending
        head = messages.signal_message_head(sending.version, sending.ratchet_key)
        field_5 = pq_ratchet.encode(sending.pq_index + FAR)
        body = messages.encode_signal_message(head, sending.counter + FAR, 0, bytes(16), field_5) + bytes(8)
        self.post(body)

    def post(self, body: bytes) -> None:
        """Send any bytes as a message."""
        envelope = device.Send(0, self.number, BUSINESS, f"forged-{next(self._ids)}", device.MESSAGE, body)
        self._own_ids.add(envelope.id)
        self._connection.send(envelope, envelope.id)

    def settle(self) -> None:
        """Send an honest message, so that the business knows the chain on which the next ones are forged."""
        self.reply(BUSINESS, NULL_CONTENT)


@contextlib.asynccontextmanager
async def forger(target: Target) -> AsyncIterator[Forger]:
    made, stop = Forger(target.network_url), asyncio.Event()
    await made.register(target.registration_key)
    connected = asyncio.create_task(made.run(stop))
    async with asyncio.timeout(20):
        await made.online.wait()
        await made.send(BUSINESS, NULL_CONTENT)
    try:
        yield made
    finally:
        stop.set()
        await connected


async def test_forged_messages_far_ahead_cause_one_error_callback_and_no_delay(
    target: Target, attack: Attack, form: Form
) -> None:
    before = await target.metric("coreapp", "callback_requests_total", 'type="error"')
    async with (
        forger(target) as device,
        attack("forged messages far ahead", on="coreapp", others=("messages", "read"), cpu=None) as strike,
    ):
        for n in range(FORGED):
            if n % 10 == 0:
                # The chain walks then always concern the current session, also after it was replaced.
                device.settle()
                await asyncio.sleep(0.01)
            device.forge()
        await device.settled()
        # A steady stream of forged messages follows.
        for _ in range(form.count(short=10, long=300)):
            for _ in range(10):
                device.forge()
            await asyncio.sleep(0.1)
        await device.settled()
        strike.figure("forged messages taken by the network", device.taken, 100, at_least=True)
    errors = await target.metric("coreapp", "callback_requests_total", 'type="error"') - before
    strike.figure("errors posted one by one", errors, ERRORS)
    steps = await target.metric("coreapp", "tidings_peer_work_steps_total", 'outcome="refused"')
    strike.figure("steps that were refused", steps, FAR, at_least=True)


async def test_a_flood_of_undecryptable_messages_does_not_fill_the_callback_queue(
    target: Target, attack: Attack, form: Form
) -> None:
    before = await target.metric("coreapp", "callback_requests_total", 'type="error"')
    async with (
        forger(target) as device,
        attack("undecryptable messages", on="coreapp", others=("messages", "read"), cpu=None) as strike,
    ):
        for _ in range(form.count(short=1, long=4)):
            for _ in range(2_500):
                device.post(GARBAGE)
            await device.settled()
        strike.figure("undecryptable messages taken by the network", device.taken, 600, at_least=True)
        waiting = await target.metric("coreapp", "tidings_callbacks_from_recipients")
        strike.figure("callbacks that wait for the webhook", waiting, 100)
    errors = await target.metric("coreapp", "callback_requests_total", 'type="error"') - before
    # Plus one with the number of the others, a minute after the first that is not reported singly.
    strike.figure("errors posted", errors, ERRORS + form.count(short=1, long=4))


async def test_a_flood_of_texts_from_one_recipient_delays_no_other_callback(
    target: Target, attack: Attack, form: Form
) -> None:
    text = content.encode_text("flood")
    before = await target.metric("coreapp", "tidings_events_total", 'outcome="received"')
    async with (
        forger(target) as device,
        attack("a flood of texts", on="coreapp", others=("messages", "read"), cpu=None) as strike,
    ):
        for _ in range(form.count(short=1, long=4)):
            for _ in range(1_000):
                device.reply(BUSINESS, text)
            await device.settled()
            # The network lets a pair send at most 500 per second for long.
            await asyncio.sleep(form.pick(short=0.0, long=2.0))
        received = await target.metric("coreapp", "tidings_events_total", 'outcome="received"') - before
        strike.figure("texts that have arrived meanwhile", received, None)
