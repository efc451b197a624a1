"""Output of `tidings queue` for jobs, callbacks and audit entries: lines of text, and objects for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cli.choices import utc
from cli.counts import counted
from tidings.storage.business import queue_views
from tidings.storage.business.audit_entries import AuditRow
from tidings.storage.business.callback_purges import CallbackPurgeRow
from tidings.storage.business.callback_replays import Replay
from tidings.storage.business.queue_views import CallbackView, Depth, JobView, QuarantineView

AuditedRow = Replay | CallbackPurgeRow | AuditRow

_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))


def age(milliseconds: int, now: float) -> str:
    """Return an age in one unit, such as `12s` or `3h`.

    milliseconds: Unix milliseconds.
    now: Unix seconds.
    """
    seconds = max(0.0, now - milliseconds / 1000)
    for length, unit in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"


def callback_line(row: CallbackView, now: float) -> str:
    """Return one callback as a line of text. now: Unix seconds."""
    next_attempt = {
        queue_views.DEAD: "given up",
        queue_views.FAILING: f"again at {utc(row.due_at)}",
        queue_views.PENDING: "not tried yet",
    }[row.status]
    words = (row.event_id, row.kind, row.subject or "-", row.recipient or "-", f"shard {row.shard}")
    line = f"{'  '.join(words)}  {age(row.created_at, now)} old, {counted(row.attempt, 'attempt')}, {next_attempt}"
    return f"{line}  {row.last_error}".rstrip()


def callback_object(row: CallbackView, now: float) -> dict[str, Any]:
    """Return one callback as a JSON object. now: Unix seconds."""
    return {
        "event_id": row.event_id,
        "shard": row.shard,
        "status": row.status,
        "kind": row.kind,
        "subject": row.subject,
        "recipient": row.recipient or None,
        "attempts": row.attempt,
        "created_at": utc(row.created_at),
        "age_s": round(max(0.0, now - row.created_at / 1000)),
        "next_attempt_at": utc(row.due_at) if row.status == queue_views.FAILING else None,
        "last_error": row.last_error or None,
        "request_id": row.request_id or None,
    }


def job_line(row: JobView, now: float) -> str:
    """Return one job as a line of text. now: Unix seconds."""
    line = f"{row.id}  {row.recipient}  shard {row.shard}  {age(row.created_at, now)} old, {row.status}"
    if not row.attempts:
        return line
    return f"{line}, {counted(row.attempts, 'attempt')} failed, the last {age(row.tried_at, now)} ago  {row.last_error}"


def job_object(row: JobView, now: float) -> dict[str, Any]:
    """Return one job as a JSON object. now: Unix seconds."""
    return {
        "id": row.id,
        "shard": row.shard,
        "status": row.status,
        "recipient": row.recipient,
        "created_at": utc(row.created_at),
        "age_s": round(max(0.0, now - row.created_at / 1000)),
        "failed_attempts": row.attempts,
        "last_attempt_at": utc(row.tried_at) if row.attempts else None,
        "last_error": row.last_error or None,
        "request_id": row.request_id or None,
    }


def quarantine_line(row: QuarantineView, now: float) -> str:
    """Return one item that ended a process or a shard as a line of text. now: Unix seconds."""
    line = f"{row.kind}  {row.id}  {row.peer or '-'}  {row.status}, {counted(row.attempts, 'attempt')}"
    return f"{line}, the last {age(row.tried_at, now)} ago  {row.last_error}"


def quarantine_object(row: QuarantineView, now: float) -> dict[str, Any]:
    """Return one item that ended a process or a shard as a JSON object. now: Unix seconds."""
    return {
        "kind": row.kind,
        "id": row.id,
        "status": row.status,
        "recipient": row.peer or None,
        "attempts": row.attempts,
        "last_attempt_at": utc(row.tried_at),
        "age_s": round(max(0.0, now - row.tried_at / 1000)),
        "last_error": row.last_error,
    }


def depth_lines(depths: Sequence[Depth], now: float) -> Sequence[str]:
    """Return the depths of the queues as a table. now: Unix seconds."""
    if not depths:
        return ["no jobs, no callbacks"]
    head = f"{'queue':<10} {'shard':>5}  {'status':<9} {'rows':>8}  oldest"
    return [
        head,
        *(f"{d.queue:<10} {d.shard:>5}  {d.status:<9} {d.count:>8}  {age(d.oldest, now)}" for d in depths),
    ]


def depth_object(depth: Depth, now: float) -> dict[str, Any]:
    """Return one depth as a JSON object. now: Unix seconds."""
    oldest = round(max(0.0, now - depth.oldest / 1000))
    return {
        "queue": depth.queue,
        "shard": depth.shard,
        "status": depth.status,
        "rows": depth.count,
        "oldest_age_s": oldest,
    }


def audit_object(entry: AuditedRow) -> dict[str, Any]:
    """Return one audit entry as a JSON object: a replay of one callback, a purge of several rows, or another action."""
    if isinstance(entry, AuditRow):
        return {
            "at": utc(entry.at),
            "by": entry.by,
            "action": entry.action,
            "number": entry.account,
            "subject": entry.subject,
        }
    at = {"at": utc(entry.at), "shard": entry.shard, "by": entry.by}
    if isinstance(entry, Replay):
        return {**at, "action": "replay", "event_id": entry.event_id}
    return {**at, "action": "purge", "queue": entry.queue, "deleted": entry.deleted, "choice": entry.choice}


def audit_line(entry: AuditedRow) -> str:
    """Return one audit entry as a line of text."""
    if isinstance(entry, AuditRow):
        return f"{utc(entry.at)}  {entry.action.replace('_', ' ')} {entry.subject} of {entry.account}  {entry.by}"
    if isinstance(entry, Replay):
        return f"{utc(entry.at)}  replay  {entry.event_id}  {entry.by}"
    return f"{utc(entry.at)}  purge   {entry.deleted} {entry.queue} of shard {entry.shard}: {entry.choice}  {entry.by}"
