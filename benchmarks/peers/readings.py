"""Interpretation of the figures in words: where a peer is ahead of Tidings, and why.

Computed, so it cannot go stale.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.peers import report
from benchmarks.peers.jobs import ENQUEUED, WORKED
from benchmarks.rig.run import Run

# Relative difference up to which two figures count as equal.
SAME = 0.05

# Reasons why a peer is ahead, by the name of its runs.
_REDIS = "Redis appends to a log and syncs once for all that it has read; there is no transaction and no SQL."
_RIVER = "Go runs clients and workers on both cores, and its insert is one statement without a fence."
WHY = {
    "jobs-river": _RIVER,
    "jobs-river-2ms": _RIVER,
    "jobs-jetstream": "a write is appended to one file, with no index and no transaction, by a compiled server.",
    "jobs-saq": _REDIS,
    "jobs-arq": _REDIS,
    "webhooks-river-2ms": "Go posts on both cores; ours encodes, signs and posts on one.",
    "webhooks-jetstream": "a write is appended to one file, with no index; Go posts on both cores.",
    "delivery-nats": "nothing is acknowledged, kept or looked up: a subject is matched and bytes are copied, in Go, on "
    "both cores; what a client was not there for is lost.",
    "delivery-nats-acks": "the answer is one more message that nobody keeps; ours gives each envelope a place in a "
    "mailbox's order, keeps it until the device has it, and knows it when it comes again. And it is Go, on both cores.",
    "delivery-centrifuge": "nothing is acknowledged; compiled, on both cores.",
    "delivery-centrifuge-acks": "the answer is one more publication that nobody keeps; compiled, on both cores.",
    "delivery-mosquitto": "written in C; its sessions are in memory and lost with it.",
    "delivery-mochi": "compiled, on both cores; its sessions are in memory and lost with it.",
    "delivery-grpc": "a hub of a hundred lines that keeps nothing; compiled, on both cores.",
}


def of(part: str, runs: Sequence[Run]) -> str:
    """Return a list in Markdown; empty when there is nothing to compare.

    runs: one per peer, Tidings' first
    """
    ours, *others = runs
    return "\n".join(_compared(part, ours, other) for other in others)


def _compared(part: str, ours: Run, other: Run) -> str:
    figures = _delivery_figures if part == "delivery" else _queue_figures
    mine = figures(ours)
    pairs = [(name, value, mine[name]) for name, value in figures(other).items()]
    ahead = [_said(*pair) for pair in pairs if _is_ahead(*pair)]
    behind = [_said(name, his, own) for name, his, own in pairs if _is_ahead(name, own, his)]
    parts = []
    if ahead:
        # The reasons of jobs apply between two processes too.
        why = WHY.get(other.name.replace("apart-", "jobs-"), "").rstrip(".")
        parts.append(f"**ahead of ours** in {', '.join(ahead)}" + (f": {why}" if why else ""))
    if behind:
        parts.append(f"behind in {', '.join(behind)}")
    doubt = " († others used the machine: no judgement)" if ours.is_marked or other.is_marked else ""
    return f"- {other.title}: {'; '.join(parts) or 'level with ours'}.{doubt}"


def _queue_figures(run: Run) -> dict[str, float]:
    return {
        "rate": run.rate,
        "CPU µs": report.cpu(run),
        "p50 ms of enqueuing": run.latencies[ENQUEUED].p50,
        "p99 ms until worked": run.latencies[WORKED].p99,
    }


def _delivery_figures(run: Run) -> dict[str, float]:
    to_device = run.latencies["at 1,000/s, to the device"]
    return {
        "rate": run.rate,
        "servers' CPU µs": report.servers(run.cpu_us()),
        "p50 ms to the device": to_device.p50,
        "p99 ms to the device": to_device.p99,
    }


def _is_ahead(name: str, one: float, other: float) -> bool:
    """Return whether the first value is better: higher for rates, lower for everything else."""
    return one > other * (1 + SAME) if name == "rate" else one < other * (1 - SAME)


def _said(name: str, theirs: float, ours: float) -> str:
    def short(value: float) -> str:
        return f"{value:,.0f}" if value >= 20 else f"{value:.2f}"

    return f"{name} ({short(theirs)} to {short(ours)})"
