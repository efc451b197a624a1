"""Running installation under load, and its ledger: messages sent, messages shown, callbacks received."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from harness import client, ledger, measure
from harness.client import Business, Sent
from harness.installation import Installation
from harness.processes import Process
from harness.sink import Record
from harness.sink_process import SinkProcess

# Prefixes of the recipients: those that read, and, one in five, those that read and send each text back.
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
# Maximum seconds until everything is recovered and delivered after the last kill.
SETTLE_SECONDS = 120.0
SETTLE_AGAIN_SECONDS = 15.0
POLL_SECONDS = 0.25

_LETTERS = "abcdefghijklmnopqrstuvwxyz äöüß你好👋\n\"'\\"


@dataclasses.dataclass(slots=True)
class Phase:
    """Period of load with a disruption in it."""

    name: str
    sent: list[Sent] = dataclasses.field(default_factory=list)
    troubles: list[float] = dataclasses.field(default_factory=list)  # Unix seconds of each failure
    problem: str = ""

    def trouble(self) -> None:
        """Record that a failure is about to happen."""
        self.troubles.append(time.time())


class Disruption(Protocol):
    """Failure in a phase."""

    async def prepare(self, scene: Scene) -> None:
        """Prepare the failure before the load starts."""
        ...

    async def disrupt(self, scene: Scene, phase: Phase, duration: float) -> None:
        """Cause the failure while messages flow, for `duration` seconds."""
        ...


class Scene:
    """Installation with a logged-in business, a webhook, and known contacts."""

    def __init__(self, installation: Installation, sink: SinkProcess, business: Business, rng: random.Random) -> None:
        self.installation = installation
        self.rng = rng
        self.phases: list[Phase] = []
        self.shown: list[ledger.Shown] = []
        self.records: list[Record] = []
        self.unconfirmed = ""  # start of the reason of messages that may fail; empty for none
        self.tolerated: frozenset[str] = frozenset()  # kinds of faults that are no problem of this scene
        self._sink = sink
        self.business = business
        self._count = 0
        self._settle_seconds = SETTLE_SECONDS

    @property
    def processes(self) -> Mapping[str, Process]:
        """Processes that may be killed, by name."""
        return self.installation.processes

    async def open(self) -> None:
        """Log in, set the webhook, and check every contact."""
        await self.business.log_in()
        await self.business.set_webhook(self._sink.url)
        await self.business.check_contacts([number(index) for index in range(ROBOTS)])

    async def play(self, name: str, messages: int, rate: float, disruption: Disruption) -> None:
        """Send `rate` messages per second during the disruption.

        The last tenth is sent when both are over, to check that everything has recovered.
        """
        phase = Phase(name)
        self.phases.append(phase)
        print(f"{name} ...", flush=True)
        # More recipients with every phase, so that each phase has some that are written to for the first time.
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
        """Wait until everything accepted was shown and reported and no queue holds anything; False at the
        deadline."""
        deadline = time.monotonic() + self._settle_seconds
        while True:
            await self.collect()
            if self._is_balanced() and await asyncio.to_thread(self.queues_are_empty):
                # Items in flight between the two checks are in the ledger by now.
                await self.collect()
                if self._is_balanced():
                    return True
            if time.monotonic() > deadline:
                # Anything missing now will hardly come later: the phases after this one wait for it only briefly.
                self._settle_seconds = SETTLE_AGAIN_SECONDS
                return False
            await asyncio.sleep(POLL_SECONDS)

    async def respond_with(self, status: int) -> None:
        """Let the webhook respond with this HTTP status from now on."""
        await self._sink.respond_with(status)

    async def collect(self) -> None:
        """Update the ledger."""
        self.shown = await asyncio.to_thread(self.list_shown)
        self.records += await self._sink.take()

    def list_shown(self) -> list[ledger.Shown]:
        """Return the messages that recipients have shown, with the ids that the business knows."""
        return self.installation.list_shown()

    def queues_are_empty(self) -> bool:
        """Return whether no job and no callback is pending."""
        return are_queues_empty(self.installation)

    def _is_balanced(self) -> bool:
        accepted = {s.request.message_id for phase in self.phases for s in phase.sent if s.request.accepted}
        shown = {line.message_id for line in self.shown}
        failed = ledger.unconfirmed_ids(statuses(self.records), self.unconfirmed)
        if not (accepted <= shown | failed and shown <= measure.completion_times(self.records).keys() | failed):
            return False
        return not verdict(self.phases, self).reply_missing

    def owner(self) -> str:
        """Return the node that owns the shard according to the database."""
        return str(self.installation.read_value("business", "SELECT owner FROM shards WHERE shard = 0") or "")

    async def request_shards(self, count: int) -> None:
        """Request another number of shards. The response may be lost."""
        body = {"cc": "1", "phone_number": "5550000000", "shards": count}
        await self.business.check_call("POST", "/v1/account/shards", body)

    def shards(self) -> tuple[int, int, int]:
        """Return the number of shards, how many of them have owners, and the number requested instead, 0 for
        none."""
        read = self.installation.read_value
        owned = read("business", "SELECT COUNT(*) FROM shards WHERE address <> ''")
        return (
            read("business", "SELECT shards FROM shard_layout"),
            owned,
            read("business", "SELECT wanted FROM shard_layout"),
        )

    def next_message(self) -> tuple[str, str]:
        """Return a recipient and a text for it, for a load without end."""
        return number(self.rng.randrange(ROBOTS)), self._text()

    def _text(self) -> str:
        """Return a text of 20 to 300 characters that is unique in the run."""
        self._count += 1
        rest = "".join(self.rng.choices(_LETTERS, k=self.rng.randint(10, 290)))
        return f"#{self._count:06d} {rest}."


def verdict(phases: Sequence[Phase], scene: Scene) -> ledger.Verdict:
    """Return the balance of these phases. The balance of all phases includes what belongs to none."""
    requests = [sent.request for phase in phases for sent in phase.sent]
    shown, records = scene.shown, scene.records
    if len(phases) < len(scene.phases):
        digests = {request.digest for request in requests}
        ids = {request.message_id for request in requests if request.message_id}
        shown = [line for line in shown if line.digest in digests or line.message_id in ids]
        ids |= {line.message_id for line in shown}
        records = [record for record in records if record.message_id in ids]
    replies = [
        ledger.Reply(record.sender, ledger.digest(record.text), record.message_id)
        for record in scene.records
        if record.status == "inbound"
    ]
    return ledger.reconcile(requests, shown, statuses(records), replies, echoing=ECHOING, unconfirmed=scene.unconfirmed)


def statuses(records: Iterable[Record]) -> list[ledger.Status]:
    """Return the statuses among these records."""
    return [
        ledger.Status(record.event_id, record.message_id, record.status, record.reason)
        for record in records
        if record.status != "inbound"
    ]


def are_queues_empty(installation: Installation) -> bool:
    """Return whether an installation has no pending job and no pending callback."""
    read = installation.read_value
    return not any(read("business", f"SELECT COUNT(*) FROM {table}") for table in ("jobs", "callbacks"))


def recovery_seconds(phase: Phase, scene: Scene) -> float | None:
    """Return the longest time from a failure to the first callbacks, all three, of a message that was sent
    after it."""
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


# A recovery may exceed its limit by this many times what a message took before the failure, in the same run: other
# programs on the machine delay it, too.
SLOWER = 3.0


def usual_seconds(phase: Phase, scene: Scene) -> float:
    """Return the longest time from a request to all three callbacks, of messages that had them before the first
    failure: what this machine needs in this run. 0 when there were none."""
    done = measure.completion_times(scene.records)
    first = min(phase.troubles)
    return max(
        (
            done[sent.request.message_id] - sent.started
            for sent in phase.sent
            if done.get(sent.request.message_id, first) < first
        ),
        default=0.0,
    )


def number(index: int) -> str:
    part, rest = divmod(index, 5)
    return f"{ECHOING}{part:04d}" if rest == 4 else f"{READING}{index - part:04d}"
