"""A running installation under load, and its books: who sent what, who showed it, what the webhook got."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Sequence
from typing import Protocol

from harness import client, ledger, measure
from harness.client import Business, Sent
from harness.installation import Installation
from harness.sink import Record
from harness.sink_process import SinkProcess

# Recipients who read, and, one in five, who read and send each text back.
ROBOTS = 500
READING, ECHOING = "1555011", "1555014"
LEASE_SECONDS = 3.0
ENVIRONMENT = {
    "TIDINGS_MESSAGES_RATE": "0",
    "TIDINGS_CONTACTS_RATE": "0",
    "TIDINGS_ROBOTS_KINDS": "11,14",
    "TIDINGS_ROBOTS_PER_KIND": str(ROBOTS - ROBOTS // 5),
    "TIDINGS_LEASE_SECONDS": str(LEASE_SECONDS),
}
# The longest that recovery and delivery of everything may take after the last kill, in seconds.
SETTLE_SECONDS = 120.0
SETTLE_AGAIN_SECONDS = 15.0
POLL_SECONDS = 0.25

_LETTERS = "abcdefghijklmnopqrstuvwxyz äöüß你好👋\n\"'\\"


@dataclasses.dataclass(slots=True)
class Phase:
    """A stretch of load with something going wrong in it. troubles: Unix seconds of each."""

    name: str
    sent: list[Sent] = dataclasses.field(default_factory=list)
    troubles: list[float] = dataclasses.field(default_factory=list)
    problem: str = ""

    def trouble(self) -> None:
        """Something is about to go wrong."""
        self.troubles.append(time.time())


class Disruption(Protocol):
    """What goes wrong in a phase."""

    async def prepare(self, scene: Scene) -> None:
        """Before the load begins."""
        ...

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        """While it flows, for `duration` seconds."""
        ...


class Scene:
    """An installation with a logged-in business, a webhook, and known contacts."""

    def __init__(self, installation: Installation, sink: SinkProcess, business: Business, rng: random.Random) -> None:
        self.installation = installation
        self.rng = rng
        self.phases: list[Phase] = []
        self.shown: list[ledger.Shown] = []
        self.records: list[Record] = []
        self._sink = sink
        self.business = business
        self._count = 0
        self._patience = SETTLE_SECONDS

    async def open(self) -> None:
        """Log in, set the webhook, check every contact."""
        await self.business.log_in()
        await self.business.set_webhook(self._sink.url)
        await self.business.check_contacts([number(index) for index in range(ROBOTS)])

    async def play(self, name: str, messages: int, rate: float, disruption: Disruption) -> None:
        """Send at `rate` a second while `disruption` does its work.

        The last tenth is sent when both are over, to see that everything has recovered.
        """
        phase = Phase(name)
        self.phases.append(phase)
        print(f"{name} ...", flush=True)
        # More recipients with every phase, so that in each some are written to for the first time.
        reach = min(ROBOTS, 60 * len(self.phases))
        work = [(number(self.rng.randrange(reach)), self._text()) for _ in range(messages)]
        during = messages - messages // 10
        await disruption.prepare(self)
        loading = asyncio.create_task(client.open_loop(self.business, work[:during], rate))
        try:
            await disruption.disrupt(self, phase, during / rate)
        finally:
            phase.sent = (await loading).sent
        phase.sent += (await client.open_loop(self.business, work[during:], rate)).sent

    async def settle(self) -> bool:
        """Wait until everything accepted was shown and reported and no queue holds anything; false at the deadline."""
        deadline = time.monotonic() + self._patience
        while True:
            await self.collect()
            if self._is_balanced() and await asyncio.to_thread(self._queues_are_empty):
                # What was in flight between the two looks is in the books now.
                await self.collect()
                if self._is_balanced():
                    return True
            if time.monotonic() > deadline:
                # What is missing now will hardly come later: the phases after this one wait for it only briefly.
                self._patience = SETTLE_AGAIN_SECONDS
                return False
            await asyncio.sleep(POLL_SECONDS)

    async def collect(self) -> None:
        """Bring the books up to date."""
        self.shown = await asyncio.to_thread(self.installation.list_shown)
        self.records += await self._sink.take()

    def _is_balanced(self) -> bool:
        accepted = {s.request.message_id for phase in self.phases for s in phase.sent if s.request.accepted}
        shown = {line.message_id for line in self.shown}
        if not (accepted <= shown and shown <= measure.completion_times(self.records).keys()):
            return False
        return not verdict(self.phases, self).reply_missing

    def _queues_are_empty(self) -> bool:
        read = self.installation.read_value
        return not any(read("business", f"SELECT COUNT(*) FROM {table}") for table in ("jobs", "callbacks"))

    def owner(self) -> str:
        """The node that owns the shard now, by the database."""
        return str(self.installation.read_value("business", "SELECT owner FROM shards WHERE shard = 0") or "")

    async def ask_for_shards(self, count: int) -> None:
        """Have another number of shards; the answer may be lost."""
        body = {"cc": "1", "phone_number": "5550000000", "shards": count}
        await self.business.must("POST", "/v1/account/shards", body)

    def shards(self) -> tuple[int, int, int]:
        """How many there are, how many of them have owners, and how many are wanted in their place, 0 for none."""
        read = self.installation.read_value
        owned = read("business", "SELECT COUNT(*) FROM shards WHERE address <> ''")
        return (
            read("business", "SELECT shards FROM shard_layout"),
            owned,
            read("business", "SELECT wanted FROM shard_layout"),
        )

    def next_message(self) -> tuple[str, str]:
        """A recipient and a text for it, of a load without an end."""
        return number(self.rng.randrange(ROBOTS)), self._text()

    def _text(self) -> str:
        """Unlike any other of the run, of 20 to 300 characters."""
        self._count += 1
        rest = "".join(self.rng.choices(_LETTERS, k=self.rng.randint(10, 290)))
        return f"#{self._count:06d} {rest}."


def verdict(phases: Sequence[Phase], scene: Scene) -> ledger.Verdict:
    """The balance of these phases: of all of them together also what belongs to none."""
    requests = [sent.request for phase in phases for sent in phase.sent]
    shown, records = scene.shown, scene.records
    if len(phases) < len(scene.phases):
        digests = {request.digest for request in requests}
        ids = {request.message_id for request in requests if request.message_id}
        shown = [line for line in shown if line.digest in digests or line.message_id in ids]
        ids |= {line.message_id for line in shown}
        records = [record for record in records if record.message_id in ids]
    statuses = [ledger.Status(r.event_id, r.message_id, r.status) for r in records if r.status != "inbound"]
    replies = [
        ledger.Reply(record.sender, ledger.digest(record.text), record.message_id)
        for record in scene.records
        if record.status == "inbound"
    ]
    return ledger.reconcile(requests, shown, statuses, replies, echoing=ECHOING)


def recovery_seconds(phase: Phase, scene: Scene) -> float | None:
    """The longest time from a trouble to the first callbacks, all three, of a message that was sent after it."""
    done = measure.completion_times(scene.records)
    waits = []
    for trouble in phase.troubles:
        later = [
            done[sent.request.message_id] - trouble
            for other in scene.phases
            for sent in other.sent
            if sent.started >= trouble and sent.request.message_id in done
        ]
        if later:
            waits.append(min(later))
    return max(waits) if waits else None


def number(index: int) -> str:
    part, rest = divmod(index, 5)
    return f"{ECHOING}{part:04d}" if rest == 4 else f"{READING}{index - part:04d}"
