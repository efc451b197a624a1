"""Messages over the API as a measured run: warm-up, load, wait for callbacks, reconciliation."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.rig import contents, progress, summary
from benchmarks.rig.run import Run, RunFailed
from benchmarks.rig.sampler import Samples, role
from benchmarks.rig.stage import Scene
from benchmarks.rig.summary import Summary
from harness import client, ledger, measure
from harness.client import Load, Message
from harness.sink import Counts, Record

WARM_UP_ROUNDS = 2
# Seconds without a callback after which none is expected for requests without a response.
SETTLED = 3.0
# Messages per second below which a run is given up.
SLOWEST = 10.0
# Calls of the Coreapp to the network: their names in its metrics and in the report.
UPSTREAM = {"check": "server: contacts", "fetch": "server: pre-keys", "send": "server: send"}


async def warm_up(scene: Scene, numbers: Sequence[str], clients: int = 64) -> None:
    """Check every contact and send to it twice: with the second message its recipient completes the key exchange."""
    await scene.business.check_contacts(numbers)
    done = (await scene.sink.counts()).complete
    for turn in range(WARM_UP_ROUNDS):
        work = [contents.text(number, f"warm-up {turn}, {i}: ") for i, number in enumerate(numbers)]
        await client.closed_loop(scene.business, work, clients)
        await wait_complete(scene, done + (turn + 1) * len(numbers))


async def wait_complete(scene: Scene, messages: int, *, seconds: float | None = None) -> Counts:
    """Wait until `messages` messages have all three statuses, since the last `take`. Raises `RunFailed`."""
    try:
        async with asyncio.timeout(60 + messages / SLOWEST if seconds is None else seconds):
            return await scene.sink.wait_complete(messages)
    except TimeoutError:
        raise RunFailed(f"of {messages} messages only these were completed: {await scene.sink.counts()}") from None


@dataclasses.dataclass(frozen=True, slots=True)
class LogOffsets:
    """Start of a run in the files of the robots, in bytes."""

    shown: int  # offset in the messages that they have shown
    log: int  # offset in their log


class Measured:
    """Results of a run of messages, filled in by `measured`."""

    def __init__(self) -> None:
        self.load = Load([], [])  # requests of the clients, filled in by the block of `measured`
        self.started = time.time()  # Unix seconds
        self.sent_in = 0.0  # seconds until the last response
        self.records: list[Record] = []  # callbacks that the webhook received
        self.verdict: ledger.Verdict | None = None
        self._samples: Samples | None = None

    @property
    def samples(self) -> Samples:
        assert self._samples is not None, "the run is not over"
        return self._samples

    def finish(self, samples: Samples) -> None:
        self._samples = samples

    def run(
        self,
        name: str,
        title: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Run:
        """Return the figures. A message is done when the last of its three callbacks has its response."""
        done = measure.completion_times(self.records)
        rates = measure.rates(self.started, self.records)
        more = {
            "steady_rate": round(rates.steady, 1),
            "api_rate": round(len(self.load.sent) / self.sent_in, 1),
            "repeated_callbacks": self.verdict.repeats if self.verdict else 0,
            "refused": {str(status): count for status, count in self.load.refused.items()},
            "callback_post_ms": callback_milliseconds(self.samples),
        }
        return Run(
            name=name,
            title=title,
            count=len(done),
            unit="messages",
            seconds=rates.seconds,
            rate=rates.whole,
            latencies=latencies(self.load, done, self.samples),
            throughput=summary.per_second(done.values(), self.started),
            samples=self.samples,
            parameters=parameters or {},
            details={**more, **(details or {})},
        )


@asynccontextmanager
async def measured(
    scene: Scene, planned: int | None = None, *, drain: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[Measured]:
    """Measure the messages that the block sends and adds to `load`. Then wait for every callback and reconcile.

    Raises `RunFailed` when the reconciliation fails.

    planned: number of messages, for the progress output; None when not known
    drain:   called when everything is sent
    """
    recipients = scene.recipients
    before = LogOffsets(recipients.shown_bytes(), recipients.processes["robots"].log_path.stat().st_size)
    await scene.sink.take()
    found = Measured()

    async def progress_line() -> str:
        counts = await scene.sink.counts()
        of = f" of {planned:,}" if planned else ""
        return f"{len(found.load.sent):,}{of} accepted, {counts.complete:,} with all callbacks"

    async with scene.sampler() as sampler, progress.shown(progress_line):
        scene.installation.restart_profiles()
        found.started = time.time()
        yield found
        found.sent_in = max((s.started + s.took for s in found.load.sent), default=time.time()) - found.started
        if drain is not None:
            await drain()
        await _wait_all(scene, found.load)
    counts = await scene.sink.counts()
    found.records = await scene.sink.take()
    found.verdict = await asyncio.to_thread(_reconcile, scene, found, before, counts)
    found.finish(sampler.samples)


async def _wait_all(scene: Scene, load: Load) -> None:
    """Wait for every callback, also for messages whose acceptance is unknown."""
    counts = await wait_complete(scene, sum(sent.request.accepted for sent in load.sent))
    while any(sent.request.status is None or sent.request.in_doubt for sent in load.sent):
        await asyncio.sleep(SETTLED)
        later = await scene.sink.counts()
        if later.statuses == counts.statuses:
            return
        counts = later


def _reconcile(scene: Scene, found: Measured, before: LogOffsets, counts: Counts) -> ledger.Verdict:
    """Compare requests, shown messages and callbacks. Raises `RunFailed`."""
    shown = scene.list_shown(before.shown)
    statuses = [
        ledger.Status(record.event_id, record.message_id, record.status)
        for record in found.records
        if record.status != "inbound" and record.response_status == 200
    ]
    verdict = ledger.reconcile([sent.request for sent in found.load.sent], shown, statuses)
    if verdict.faults():
        raise RunFailed(verdict.describe())
    if counts.bad_signatures or counts.unreadable:
        raise RunFailed(f"callbacks with a wrong signature or an unreadable body: {counts}")
    bad = unopened_files(scene, before.log)
    if bad:
        raise RunFailed(f"files that recipients could not open: {bad[:3]}")
    return verdict


def unopened_files(scene: Scene, since: int) -> list[str]:
    """Return log lines of robots about files that they could not fetch, verify and open.

    since: offset in the log, bytes
    """
    with scene.recipients.processes["robots"].log_path.open("rb") as lines:
        lines.seek(since)
        checked = [line.decode(errors="replace") for line in lines if b"file.checked" in line]
    return [line.strip() for line in checked if "opened" not in line]


def latencies(load: Load, done: Mapping[str, float], samples: Samples) -> dict[str, Summary]:
    """Return latencies by operation: the client's API calls, callbacks, and the Coreapp's calls to the network."""
    accepted = [sent for sent in load.sent if sent.request.accepted]
    found: dict[str, Summary] = {}
    if accepted:
        found["POST /v1/messages"] = summary.summarise([sent.took for sent in accepted])
    if load.contacts_took:
        found["POST /v1/contacts"] = summary.summarise(load.contacts_took)
    finished = [done[s.request.message_id] - s.started for s in accepted if s.request.message_id in done]
    if finished:
        found["request to last callback"] = summary.summarise(finished)
    before, after = samples.metrics
    for call, name in UPSTREAM.items():
        server = summary.of_histogram(
            _of_coreapps(before), _of_coreapps(after), "tidings_upstream_seconds", f'"{call}"'
        )
        if server is not None:
            found[name] = server
    return found


def callback_milliseconds(samples: Samples) -> float:
    """Return the mean response time of the webhook per attempt, as the Coreapps count it, in milliseconds."""
    before, after = (_of_coreapps(metrics) for metrics in samples.metrics)
    spent, posts = (
        measure.metric(after, name) - measure.metric(before, name)
        for name in ("callback_requests_duration_ms_sum_total", "callback_requests_total")
    )
    return round(spent / posts, 3) if posts else 0.0


def _of_coreapps(metrics: Mapping[str, str]) -> str:
    return "\n".join(text for name, text in metrics.items() if role(name) == "coreapp")


async def closed(
    scene: Scene,
    name: str,
    title: str,
    work: Iterable[Message],
    clients: int,
    *,
    planned: int,
    contacts_first: bool = False,
    patient: bool = False,
    parameters: Mapping[str, Any] | None = None,
) -> Run:
    """Measure clients that wait for each response before they send the next message. Raises `RunFailed` and others."""
    async with measured(scene, planned) as found:
        await client.closed_loop(
            scene.business, work, clients, contacts_first=contacts_first, patient=patient, load=found.load
        )
    return found.run(name, title, parameters=parameters or {})
