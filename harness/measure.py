"""What a run achieved, in rates and latencies, and what processes say of themselves in their metrics."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from harness import ledger
from harness.sink import Record

# The part of a run that counts as its steady state: without the first and the last tenth.
STEADY = (0.1, 0.9)


def metric(text: str, name: str, labels: str = "") -> float:
    """The sum of one metric over the labels that contain `labels`, from Prometheus text; 0 when it is not there."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if (line.startswith((name + " ", name + "{"))) and labels in line
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Rates:
    """Messages a second of which all three callbacks have arrived.

    whole:  from the first request to the last callback; steady: in the middle 80 % of the messages.
    """

    whole: float
    steady: float
    seconds: float


def rates(first_request: float, records: Sequence[Record]) -> Rates:
    """first_request: Unix seconds."""
    done = sorted(completion_times(records).values())
    low, high = (done[min(len(done) - 1, int(len(done) * part))] for part in STEADY)
    steady = len(done) * (STEADY[1] - STEADY[0]) / max(high - low, 1e-9)
    seconds = done[-1] - first_request
    return Rates(len(done) / seconds, steady, seconds)


def completion_times(records: Sequence[Record]) -> dict[str, float]:
    """For each message with all three statuses, when the last of them first came (Unix seconds)."""
    arrivals: dict[str, dict[str, float]] = {}
    for record in records:
        if record.status in ledger.STATUSES and record.answered == 200:
            arrivals.setdefault(record.message_id, {}).setdefault(record.status, record.time)
    return {
        message_id: max(times.values()) for message_id, times in arrivals.items() if len(times) == len(ledger.STATUSES)
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p90, p95, p99 and the greatest, by nearest rank."""
    ordered = sorted(values)
    found = {f"p{p}": ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)] for p in (50, 90, 95, 99)}
    return {**found, "max": ordered[-1]}
