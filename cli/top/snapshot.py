"""Comparison of two scrapes of all processes: tables of processes, queues, latencies and shards."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from cli.top import samples
from cli.top.samples import Samples, Spread
from cli.top.sources import ScrapeResult


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessRow:
    """One process. A field is None if its value is unknown."""

    name: str
    role: str  # `webapp`, `coreapp` or `network`
    state: str  # `up` or `away`
    error: str = ""  # reason for `away`
    uptime: float | None = None  # seconds
    cpu: float | None = None  # cores in use; 1 is one whole core
    memory: float | None = None  # bytes, resident
    lag: float | None = None  # seconds; 99th percentile of the event loop's lag
    connections: float | None = None
    files: float | None = None  # open file descriptors
    rate_in: float | None = None  # requests, messages or envelopes per second
    rate_out: float | None = None  # requests, messages or envelopes per second


@dataclasses.dataclass(frozen=True, slots=True)
class QueueRow:
    """One queue. A field is None if its value is unknown."""

    process: str
    queue: str
    shard: str  # empty for a queue without a shard
    depth: float  # items
    limit: float | None  # items at which it is full
    oldest: float | None  # age of the oldest item, seconds
    rate_in: float | None  # items per second
    rate_out: float | None  # items per second
    fill: float | None  # growth, items per second
    delay: float | None  # seconds to process the queued items at the current `rate_out`
    drain: float | None  # seconds until it is empty at the current `fill`; None while it does not shrink


@dataclasses.dataclass(frozen=True, slots=True)
class LatencyRow:
    """Latencies observed since the previous scrape."""

    process: str
    what: str
    rate: float  # observations per second
    p50: float | None  # seconds; None for metrics that are not histograms
    p99: float | None  # seconds; None for metrics that are not histograms
    mean: float | None  # seconds


@dataclasses.dataclass(frozen=True, slots=True)
class ShardRow:
    """One shard and its owner."""

    shard: str
    owner: str  # name of a process; empty if none of the scraped processes owns it
    lease_epoch: int
    number: str = ""  # of the business; empty if unknown


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeRow:
    """Change of the number of shards in progress."""

    active: int  # present number of shards
    wanted: int  # future number of shards
    moved: int  # rows in their new shards


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot:
    """All tables of the view at one time."""

    at: float  # Unix seconds
    processes: Sequence[ProcessRow]
    queues: Sequence[QueueRow]
    latencies: Sequence[LatencyRow]
    shards: Sequence[ShardRow]
    change: ChangeRow | None = None  # None while the number of shards does not change
    # Calls that are still to fail because a test requested it, by target.
    faults: Mapping[str, int] = dataclasses.field(default_factory=dict)


# Gauge that names the number of each shard.
_SHARD_NUMBER = "tidings_shard_number"
# Counters for `rate_in` and `rate_out`, and gauges of connections, by role.
_RATES = {
    "webapp": ("http_request_duration_seconds_count", "http_request_duration_seconds_count"),
    "coreapp": ("tidings_messages_accepted_total", "tidings_messages_sent_total"),
    "network": ("tidings_network_envelopes_total", "tidings_network_deliveries_total"),
}
_CONNECTIONS = {"webapp": "web_connections", "network": "tidings_network_connections"}
# Histograms in seconds: metric, displayed name, and the label that distinguishes the rows.
_LATENCIES = (
    ("http_request_duration_seconds", "HTTP", "handler"),
    ("tidings_webapp_call_seconds", "Coreapp call", "result"),
    # Its name in Webapps of the previous release.
    ("tidings_webapp_question_seconds", "Coreapp call", "answer"),
    ("tidings_upstream_seconds", "call", "call"),
    ("tidings_db_transaction_seconds", "transaction", "about"),
    ("tidings_db_commit_seconds", "commit", "family"),
)
# Pairs of counters: number of events, sum of their milliseconds, displayed name, and the label that distinguishes rows.
_MEANS = (
    ("callback_requests_total", "callback_requests_duration_ms_sum_total", "webhook", "result"),
    ("out_message_sent_duration_ms_count", "out_message_sent_duration_ms_sum", "accepted to sent", "type"),
)
# Queues of releases without `tidings_queue_depth`: gauge of the depth, counter of items that have left, and gauge of
# the oldest item's age (empty without one).
_PLAIN_QUEUES = {
    "jobs": ("tidings_job_queue_size", "tidings_messages_sent_total", ""),
    "callbacks": ("callback_queue_size", "callback_requests_total", "tidings_callback_age_seconds"),
    "undecided": ("tidings_network_undecided", "tidings_network_deliveries_total", ""),
}


def compare(before: Sequence[ScrapeResult], after: Sequence[ScrapeResult], at: float) -> Snapshot:
    """Return the snapshot of two successive scrapes.

    before: readings of the previous scrape; empty at the first.
    at: Unix seconds.
    """
    earlier = {reading.source: reading.samples for reading in before}
    pairs = [(reading, earlier.get(reading.source)) for reading in after]
    present = [(reading.source.name, old, reading.samples) for reading, old in pairs if reading.samples is not None]
    return Snapshot(
        at,
        [_process(reading, old, at) for reading, old in pairs],
        [row for name, old, new in present for row in _queues(name, old, new)],
        [row for name, old, new in present for row in _latencies(name, old, new)],
        _shards([(name, new) for name, _, new in present]),
        _change([new for _, _, new in present]),
        _faults([new for _, _, new in present]),
    )


def _process(reading: ScrapeResult, old: Samples | None, at: float) -> ProcessRow:
    source, new = reading.source, reading.samples
    if new is None:
        return ProcessRow(source.name, source.role, "away", reading.error)
    started = new.total("process_start_time_seconds")
    lag = samples.spread(old, new, "tidings_event_loop_lag_seconds")
    rate_in, rate_out = _RATES[source.role]
    return ProcessRow(
        source.name,
        source.role,
        "up",
        uptime=max(0.0, at - started) if started is not None else None,
        cpu=samples.rate(old, new, "process_cpu_seconds_total"),
        memory=new.total("process_resident_memory_bytes"),
        lag=lag.p99 if lag is not None else None,
        connections=new.total(_CONNECTIONS[source.role]) if source.role in _CONNECTIONS else None,
        files=new.total("process_open_fds"),
        rate_in=samples.rate(old, new, rate_in),
        rate_out=samples.rate(old, new, rate_out),
    )


def _queues(process: str, old: Samples | None, new: Samples) -> Sequence[QueueRow]:
    known = new.values.get("tidings_queue_depth")
    if not known:
        return _plain_queues(process, old, new)
    rows = []
    for labels, depth in known.items():
        found = dict(labels)
        rate_in = samples.rate(old, new, "tidings_queue_entered_total", **found)
        rate_out = samples.rate(old, new, "tidings_queue_left_total", **found)
        if not depth and not rate_in and not rate_out:
            continue
        named = (found.get("queue", ""), found.get("shard", ""))
        limit, oldest = new.total("tidings_queue_limit", **found), new.total("tidings_queue_oldest_seconds", **found)
        fill = rate_in - rate_out if rate_in is not None and rate_out is not None else None
        rows.append(_queue(process, *named, depth, limit=limit, oldest=oldest, rates=(rate_in, rate_out), fill=fill))
    return rows


def _plain_queues(process: str, old: Samples | None, new: Samples) -> Sequence[QueueRow]:
    rows = []
    for queue, (gauge, left, age) in _PLAIN_QUEUES.items():
        depth = new.total(gauge)
        if depth is None:
            continue
        before = old.total(gauge) if old is not None else None
        fill = (depth - before) / (new.at - old.at) if old is not None and before is not None else None
        rate_out = samples.rate(old, new, left)
        rate_in = max(0.0, fill + rate_out) if fill is not None and rate_out is not None else None
        oldest = new.greatest(age) if age else None
        rates = (rate_in, rate_out)
        rows.append(_queue(process, queue, "", depth, limit=None, oldest=oldest, rates=rates, fill=fill))
    return rows


def _queue(
    process: str,
    queue: str,
    shard: str,
    depth: float,
    *,
    limit: float | None,
    oldest: float | None,
    rates: tuple[float | None, float | None],
    fill: float | None,
) -> QueueRow:
    rate_in, rate_out = rates
    delay = depth / rate_out if rate_out else None
    drain = None if depth else 0.0
    if fill is not None and fill < 0:
        drain = depth / -fill
    return QueueRow(process, queue, shard, depth, limit, oldest, rate_in, rate_out, fill, delay, drain)


def _latencies(process: str, old: Samples | None, new: Samples) -> Sequence[LatencyRow]:
    rows = []
    for name, what, label in _LATENCIES:
        for value in new.by(f"{name}_count", label):
            found: Spread | None = samples.spread(old, new, name, **({label: value} if value else {}))
            if found is not None and found.rate:
                labels = {label: value} if value else {}
                mean = _ratio(samples.rate(old, new, f"{name}_sum", **labels), found.rate)
                rows.append(LatencyRow(process, f"{what} {value}".strip(), found.rate, found.p50, found.p99, mean))
    for count, milliseconds, what, label in _MEANS:
        for value in new.by(count, label):
            rate = samples.rate(old, new, count, **{label: value})
            if rate:
                mean = _ratio(samples.rate(old, new, milliseconds, **{label: value}), rate * 1000)
                rows.append(LatencyRow(process, f"{what} {value}".strip(), rate, None, None, mean))
    return rows


def _ratio(part: float | None, whole: float) -> float | None:
    return part / whole if part is not None else None


def _shards(present: Sequence[tuple[str, Samples]]) -> Sequence[ShardRow]:
    owners: dict[str, ShardRow] = {}
    numbers = {shard: number for _, new in present for shard, number in new.pairs(_SHARD_NUMBER, "shard", "number")}
    for process, new in present:
        for shard, lease_epoch in new.by("tidings_shard_epoch", "shard").items():
            known = owners.get(shard)
            # If two processes report the shard, the one with the higher lease epoch owns it.
            if known is None or lease_epoch > known.lease_epoch:
                owners[shard] = ShardRow(
                    shard, process if lease_epoch else "", int(lease_epoch), numbers.get(shard, "")
                )
    return sorted(owners.values(), key=lambda row: (len(row.shard), row.shard))


def _faults(present: Sequence[Samples]) -> Mapping[str, int]:
    """Return the calls that are still to fail. All Webapps of a data directory report the same faults."""
    found: dict[str, int] = {}
    for new in present:
        for target, left in new.by("tidings_test_faults", "target").items():
            if left:
                found[target] = max(found.get(target, 0), int(left))
    return found


def _change(present: Sequence[Samples]) -> ChangeRow | None:
    found = []
    for new in present:
        active, wanted = (int(new.total("tidings_shards", state=state) or 0) for state in ("active", "wanted"))
        if active != wanted:
            found.append(ChangeRow(active, wanted, int(new.total("tidings_layout_rows_in_place") or 0)))
    # The process that moves the rows reports the highest count.
    return max(found, key=lambda row: row.moved, default=None)
