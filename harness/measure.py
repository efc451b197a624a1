"""Results of a run: rates and latencies from its records, and values from the metrics of processes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from harness import ledger
from harness.sink import Record

# Part of a run that counts as its steady state: without the first and the last tenth.
STEADY = (0.1, 0.9)


def metric(text: str, name: str, labels: str = "") -> float:
    """Return the sum of one metric over the labels that contain `labels`, from Prometheus text; 0 when it is absent."""
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if (line.startswith((name + " ", name + "{"))) and labels in line
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second, counted when all three callbacks have arrived."""

    # From the first request to the last callback.
    whole: float
    # In the middle 80 % of the messages.
    steady: float
    # Duration of the whole run.
    seconds: float


def rates(first_request: float, records: Sequence[Record]) -> Rates:
    """Return the rates of a run. first_request: Unix seconds."""
    done = sorted(completion_times(records).values())
    low, high = (done[min(len(done) - 1, int(len(done) * part))] for part in STEADY)
    steady = len(done) * (STEADY[1] - STEADY[0]) / max(high - low, 1e-9)
    seconds = done[-1] - first_request
    return Rates(len(done) / seconds, steady, seconds)


def completion_times(records: Sequence[Record]) -> dict[str, float]:
    """Return when the last status of each message with all three first arrived (Unix seconds)."""
    arrivals: dict[str, dict[str, float]] = {}
    for record in records:
        if record.status in ledger.STATUSES and record.response_status == 200:
            arrivals.setdefault(record.message_id, {}).setdefault(record.status, record.time)
    return {
        message_id: max(times.values()) for message_id, times in arrivals.items() if len(times) == len(ledger.STATUSES)
    }


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p90, p95, p99 and the maximum, by nearest rank."""
    ordered = sorted(values)
    found = {f"p{p}": ordered[max(0, math.ceil(len(ordered) * p / 100) - 1)] for p in (50, 90, 95, 99)}
    return {**found, "max": ordered[-1]}
