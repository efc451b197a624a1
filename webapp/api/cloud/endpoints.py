"""Calls of the Cloud API by object, edge and method, and the edges that Tidings leaves out."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.wire.cloud.identity import Kind
from webapp.api.cloud import media, messages, numbers, paths
from webapp.api.cloud.calls import Handler

MEDIA = "media"  # kind of object, besides those of `Kind` and the names in `paths`

ENDPOINTS: Mapping[tuple[str, str, str], Handler] = {
    (Kind.NUMBER, "messages", "POST"): messages.post,
    (Kind.NUMBER, "media", "POST"): media.upload,
    (Kind.NUMBER, "", "GET"): numbers.show,
    (MEDIA, "", "GET"): media.show,
    (MEDIA, "", "DELETE"): media.delete,
    (paths.ATTACHMENTS, "attachments", "GET"): media.download,
}

LEFT_OUT = frozenset(
    {
        (Kind.NUMBER, edge)
        for edge in (
            "calls",
            "groups",
            "marketing_messages",
            "smb_app_data",
            "message_history",
            "payment_configuration",
            "deregister",
        )
    }
    | {
        (Kind.WABA, edge)
        for edge in (
            "flows",
            "payment_configurations",
            "set_solution_migration_intent",
            "assigned_users",
            "credit_lines",
            "dataset",
            "activities",
        )
    }
)
"""Edges of capabilities that no app of Tidings has (docs/cloud-api.md)."""

EDGES = frozenset((kind, edge) for kind, edge, _ in ENDPOINTS)
