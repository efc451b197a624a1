"""Figures of the Coreapps, read every 15 seconds: rates of the last 30 minutes, and the state of the queues."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tidings.aio import service
from tidings.aio.clock import Clock
from tidings.storage import outages
from tidings.storage.business import shard_blocks
from tidings.wire import core
from webapp.coreapps.interfaces import AllCoreapps
from webapp.http.errors import CoreappUnavailable

log = logging.getLogger(__name__)

# Seconds between two readings, and readings that are kept: 30 minutes and the one before them.
INTERVAL, KEPT = 15.0, 121
# Seconds that each Coreapp has to respond.
_TIMEOUT = 3.0

ACCEPTED, DELIVERED, FAILED, CALLBACKS = "accepted", "delivered", "failed", "callbacks"
SERIES = (ACCEPTED, DELIVERED, FAILED, CALLBACKS)
_QUEUE = "tidings_queue_"
_COUNTED = ("out_message_persisted_total", "out_message_status_total", "callback_requests_total")

# Value of each counter by Coreapp, series and number of the business.
_Counts = Mapping[tuple[str, str, str], float]


@dataclasses.dataclass(frozen=True, slots=True)
class RatePoint:
    """Rates between two readings."""

    at: int  # Unix milliseconds of the later reading
    rates: Mapping[str, float]  # per second, by series


@dataclasses.dataclass(frozen=True, slots=True)
class QueueFigures:
    """State of one queue of one shard."""

    coreapp: str
    queue: str
    shard: str
    depth: float  # items
    limit: float | None  # items at which it is full
    oldest: float  # seconds that the oldest item has waited
    fill: float | None  # growth, items per second; `None` before the second reading

    @property
    def drain(self) -> float | None:
        """Return the seconds until the queue is empty at the present rate; `None` while it does not shrink."""
        if not self.depth:
            return 0.0
        return self.depth / -self.fill if self.fill is not None and self.fill < 0 else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Reading:
    at: float  # monotonic seconds
    wall: int  # Unix milliseconds
    counts: _Counts
    depths: Mapping[tuple[str, str, str], float]  # items, by Coreapp, queue and shard


class FiguresRecorder:
    """Service that reads the Coreapps' metrics and keeps the last 30 minutes of their rates."""

    name = "console-figures"

    def __init__(self, coreapps: AllCoreapps, clock: Clock) -> None:
        self._coreapps = coreapps
        self._clock = clock
        self._readings: collections.deque[_Reading] = collections.deque(maxlen=KEPT)
        self._queues: Sequence[QueueFigures] = ()

    async def run(self, stop: asyncio.Event) -> None:
        while True:
            try:
                await self.run_once()
            except Exception as error:
                if not outages.is_outage(error):
                    log.warning("console.figures_not_read", extra={"error": repr(error)[:200]})
            if await service.wait_for(stop, INTERVAL):
                return

    @property
    def read_at(self) -> int:
        """Return the time of the last reading, Unix milliseconds; 0 before the first."""
        return self._readings[-1].wall if self._readings else 0

    async def run_once(self) -> None:
        """Read the metrics of all Coreapps. One that does not respond is left out."""
        found = await self._coreapps.call_each(lambda n: core.GetMetrics(n=n), core.Metrics, timeout=_TIMEOUT)
        counts: dict[tuple[str, str, str], float] = {}
        queues: dict[tuple[str, str, str], dict[str, float]] = {}
        for coreapp, response in found:
            if isinstance(response, CoreappUnavailable):
                continue
            for sample in _samples(response.text):
                _count(counts, coreapp.name, sample)
                if sample.name.startswith(_QUEUE) and sample.labels.get("shard"):
                    key = (coreapp.name, sample.labels["queue"], sample.labels["shard"])
                    queues.setdefault(key, {})[sample.name.removeprefix(_QUEUE)] = sample.value
        now = self._clock.monotonic()
        self._queues = self._figures(queues, now)
        depths = {key: values.get("depth", 0.0) for key, values in queues.items()}
        self._readings.append(_Reading(now, self._clock.now_ms(), counts, depths))

    def rates(self, number: str = "") -> Sequence[RatePoint]:
        """Return the rates of the last 30 minutes, oldest first.

        number: number of the business; empty for all
        """
        readings = list(self._readings)
        return [
            RatePoint(
                after.wall,
                {series: _grown(before, after, series, number) / (after.at - before.at) for series in SERIES},
            )
            for before, after in itertools.pairwise(readings)
            if after.at > before.at
        ]

    def queues(self, block: int | None = None) -> Sequence[QueueFigures]:
        """Return the queues of all shards, the longest first.

        block: shard block of the number whose shards are included; `None` for all
        """
        chosen = [row for row in self._queues if block is None or _is_of(block, row.shard)]
        return sorted(chosen, key=lambda row: (-row.depth, row.queue, row.shard))

    def _figures(
        self, queues: Mapping[tuple[str, str, str], Mapping[str, float]], now: float
    ) -> Sequence[QueueFigures]:
        before = self._readings[-1] if self._readings else None
        found = []
        for key, values in queues.items():
            depth = values.get("depth", 0.0)
            fill = None
            if before is not None and key in before.depths and now > before.at:
                fill = (depth - before.depths[key]) / (now - before.at)
            found.append(QueueFigures(*key, depth, values.get("limit"), values.get("oldest_seconds", 0.0), fill))
        return found


def _samples(text: str) -> Iterable[Sample]:
    """Return the samples of a Coreapp that the console shows. Only their lines are parsed."""
    wanted = (*_COUNTED, _QUEUE)
    lines = "".join(f"{line}\n" for line in text.splitlines() if line.startswith(wanted))
    return [sample for family in text_string_to_metric_families(lines) for sample in family.samples]


def _count(counts: dict[tuple[str, str, str], float], coreapp: str, sample: Sample) -> None:
    series = _series_of(sample)
    if series is not None:
        key = (coreapp, series, sample.labels.get("number", ""))
        counts[key] = counts.get(key, 0.0) + sample.value


def _series_of(sample: Sample) -> str | None:
    if sample.name == "out_message_persisted_total":
        return ACCEPTED
    if sample.name == "callback_requests_total":
        return CALLBACKS
    if sample.name == "out_message_status_total":
        return {"delivered": DELIVERED, "failed": FAILED}.get(sample.labels.get("status", ""))
    return None


def _grown(before: _Reading, after: _Reading, series: str, number: str) -> float:
    """Return the growth of a series. A counter that is new or has decreased belongs to a process that started since."""
    total = 0.0
    for key, value in after.counts.items():
        if key[1] != series or (number and key[2] not in (number, "")):
            continue
        earlier = before.counts.get(key)
        if earlier is not None:
            total += value - earlier if value >= earlier else value
    return total


def _is_of(block: int, shard: str) -> bool:
    return shard.isdecimal() and shard_blocks.block_of(int(shard)) == block
