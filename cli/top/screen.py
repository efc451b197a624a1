"""Conversion of a snapshot to lines of text of a given width and height."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from cli.counts import counted
from cli.top.snapshot import ChangeRow, LatencyRow, ProcessRow, QueueRow, ShardRow, Snapshot

SORTS = ("name", "cpu", "memory", "lag", "rate")
KEYS = "q quit   s sort   p pause   space update now"


def lines(
    snapshot: Snapshot, *, sort: str = "name", width: int = 200, height: int = 0, paused: bool = False
) -> list[str]:
    """Return the view as lines. Lines beyond `height` are cut; the latencies come last.

    width: maximum length of a line, in characters.
    height: maximum number of lines; 0 for no limit.
    """
    at = f"{datetime.fromtimestamp(snapshot.at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    away = sum(row.state != "up" for row in snapshot.processes)
    state = counted(len(snapshot.processes), "process", "processes") + (f", {away} unreachable" if away else "")
    found = [f"tidings top   {at}   {state}   by {sort}{'   PAUSED' if paused else ''}   {KEYS}", ""]
    found += _processes(snapshot.processes, sort)
    found += ["", *_queues(snapshot.queues)]
    found += ["", *_shards(snapshot.shards), *_change(snapshot.change), *_faults(snapshot.faults)]
    found += ["", *_latencies(snapshot.latencies)]
    return [line[:width] for line in (found[:height] if height else found)]


def _processes(rows: Sequence[ProcessRow], sort: str) -> list[str]:
    head = (
        f"{'PROCESS':<30} {'UP':>6} {'%CPU':>6} {'MB':>7} {'LAG ms':>7} {'CONN':>7} {'FILES':>6} "
        f"{'IN/s':>8} {'OUT/s':>8}"
    )
    return [head, *(_process(row) for row in sorted(rows, key=_SORT_KEYS[sort]))]


_SORT_KEYS: dict[str, Callable[[ProcessRow], tuple[float, str]]] = {
    "name": lambda row: (0.0, row.name),
    "cpu": lambda row: (-(row.cpu or 0.0), row.name),
    "memory": lambda row: (-(row.memory or 0.0), row.name),
    "lag": lambda row: (-(row.lag or 0.0), row.name),
    "rate": lambda row: (-(row.rate_in or 0.0), row.name),
}


def _process(row: ProcessRow) -> str:
    if row.state != "up":
        return f"{row.name:<30} {row.state}: {row.error}"
    cells = (
        (duration(row.uptime), 6),
        (_number(row.cpu, 100, 1), 6),
        (_number(row.memory, 1e-6), 7),
        (_number(row.lag, 1000, 1), 7),
        (_number(row.connections), 7),
        (_number(row.files), 6),
        (_number(row.rate_in, 1, 1), 8),
        (_number(row.rate_out, 1, 1), 8),
    )
    return f"{row.name:<30} " + " ".join(f"{text:>{width}}" for text, width in cells)


def _queues(rows: Sequence[QueueRow]) -> list[str]:
    head = (
        f"{'QUEUE':<14} {'SHARD':>5} {'DEPTH':>8} {'FULL':>5} {'OLDEST':>7} {'IN/s':>8} {'OUT/s':>8} {'FILL/s':>8} "
        f"{'DELAY':>7} {'DRAIN':>7}  PROCESS"
    )
    return [head, *(_queue(row) for row in sorted(rows, key=lambda row: (-row.depth, row.queue, row.process)))]


def _queue(row: QueueRow) -> str:
    full = f"{100 * row.depth / row.limit:.0f}%" if row.limit else "-"
    cells = (
        (row.shard or "-", 5),
        (_number(row.depth), 8),
        (full, 5),
        (duration(row.oldest), 7),
        (_number(row.rate_in, 1, 1), 8),
        (_number(row.rate_out, 1, 1), 8),
        (_number(row.fill, 1, 1), 8),
        (duration(row.delay), 7),
        (duration(row.drain), 7),
    )
    return f"{row.queue[:14]:<14} " + " ".join(f"{text:>{width}}" for text, width in cells) + f"  {row.process}"


def _latencies(rows: Sequence[LatencyRow]) -> list[str]:
    head = f"{'LATENCY':<44} {'/s':>8} {'P50 ms':>8} {'P99 ms':>8} {'MEAN ms':>8}  PROCESS"
    return [head, *(_latency(row) for row in sorted(rows, key=lambda row: (-row.rate, row.what, row.process)))]


def _latency(row: LatencyRow) -> str:
    p50, p99, mean = (_number(value, 1000, 1) for value in (row.p50, row.p99, row.mean))
    return f"{row.what[:44]:<44} {row.rate:>8.1f} {p50:>8} {p99:>8} {mean:>8}  {row.process}"


def _shards(rows: Sequence[ShardRow]) -> list[str]:
    is_several = len({row.number for row in rows if row.number}) > 1
    of = {row.shard: f" of {row.number}" if is_several and row.number else "" for row in rows}
    owned = [f"{row.shard}{of[row.shard]}: {row.owner or 'NOBODY'} (epoch {row.lease_epoch})" for row in rows]
    return [f"SHARDS  {'   '.join(owned)}" if owned else "SHARDS  unknown"]


def _change(row: ChangeRow | None) -> list[str]:
    if row is None:
        return []
    moved = "1 row" if row.moved == 1 else f"{row.moved:,} rows"
    return [f"        {row.active} become {row.wanted}: {moved} moved so far"]


def _faults(left: Mapping[str, int]) -> list[str]:
    listed = "   ".join(f"{target} {count:,}" for target, count in sorted(left.items()))
    return [f"FAULTS  {listed} (calls that are still to fail for tests)"] if left else []


def _number(value: float | None, factor: float = 1.0, digits: int = 0) -> str:
    return "-" if value is None else f"{value * factor:.{digits}f}"


def duration(seconds: float | None) -> str:
    """Return a duration in one unit, such as `340ms`, `12s`, `5m`, `3h` or `9d`; `-` for None."""
    if seconds is None:
        return "-"
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"
