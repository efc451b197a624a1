"""Lease log of a run: the owners of each shard over time, and the commits that came too late."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from harness.cluster import Cluster
from tidings.storage.business.leases import LeaseRecord

_COLUMNS = "shard, epoch, owner, layout, claimed_at, ended_at, ending"
_LATE = re.compile(r"lease\.late_commit")


def owners(cluster: Cluster) -> set[str]:
    """Return the names of the processes that own a shard according to the database."""
    return {row[0] for row in cluster.read_rows("business", "SELECT owner FROM shards") if row[0]}


def read(cluster: Cluster) -> Sequence[LeaseRecord]:
    """Return the leases by shard and epoch."""
    rows = cluster.read_rows("business", f"SELECT {_COLUMNS} FROM shard_leases ORDER BY shard, epoch")
    return [LeaseRecord(*row) for row in rows]


def late_commits(cluster: Cluster) -> int:
    """Return the number of commits by former owners, all of them refused, from the logs, which outlive the
    processes."""
    logs = [cluster.processes[name].log_path.read_text(errors="replace") for name in cluster.process_names("coreapp")]
    return sum(len(_LATE.findall(text)) for text in logs)


def overlaps(records: Sequence[LeaseRecord]) -> list[str]:
    """Return one line for each time that a shard had two owners."""
    return [
        f"shard {before.shard}: {before.owner} (epoch {before.epoch}) until {before.ended_at or 'the end'}, "
        f"{after.owner} (epoch {after.epoch}) from {after.claimed_at}"
        for before, after in itertools.pairwise(records)
        if before.shard == after.shard and not 0 < before.ended_at <= after.claimed_at
    ]


def take_over_seconds(records: Sequence[LeaseRecord], troubles: Sequence[float]) -> list[float]:
    """Return the seconds from each kill of an owner (Unix seconds) to the next claim of a shard."""
    claims = sorted(record.claimed_at / 1000 for record in records)
    return [next((claim - moment for claim in claims if claim >= moment), math.inf) for moment in troubles]


def describe(records: Sequence[LeaseRecord], late: int) -> str:
    """Return a text for a report."""
    gaps = [
        (after.claimed_at - before.ended_at) / 1000
        for before, after in itertools.pairwise(records)
        if before.shard == after.shard and before.ending == "released"
    ]
    endings = {
        ending: sum(record.ending == ending for record in records) for ending in ("released", "taken", "resumed")
    }
    handed = f", handed over in {max(gaps):.2f} s at most" if gaps else ""
    return (
        f"Leases: {len(records)}, of which {endings['taken']} were taken from an owner that was silent, "
        f"{endings['resumed']} went on under the same name, {endings['released']} were given up{handed}. "
        f"{len(overlaps(records))} had two owners at a time. {late} late commits were refused."
    )
