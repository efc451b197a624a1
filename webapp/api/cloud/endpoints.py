"""Calls of the Cloud API by object, edge and method, and the edges that Tidings leaves out."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.wire.cloud.identity import Kind
from webapp.api.cloud import media, messages, numbers, paths, profile, templates, tokens, wabas
from webapp.api.cloud.calls import Handler

MEDIA = "media"  # kind of object, besides those of `Kind` and the names in `paths`

ENDPOINTS: Mapping[tuple[str, str, str], Handler] = {
    (Kind.NUMBER, "messages", "POST"): messages.post,
    (Kind.NUMBER, "media", "POST"): media.upload,
    (Kind.NUMBER, "", "GET"): numbers.show,
    (Kind.NUMBER, "", "POST"): numbers.change,
    (Kind.NUMBER, "request_code", "POST"): numbers.request_code,
    (Kind.NUMBER, "verify_code", "POST"): numbers.verify_code,
    (Kind.NUMBER, "register", "POST"): numbers.register,
    (Kind.NUMBER, "whatsapp_business_profile", "GET"): profile.show,
    (Kind.NUMBER, "whatsapp_business_profile", "POST"): profile.change,
    (Kind.WABA, "", "GET"): wabas.show,
    (Kind.WABA, "phone_numbers", "GET"): numbers.list_all,
    (Kind.WABA, "subscribed_apps", "GET"): wabas.list_subscriptions,
    (Kind.WABA, "subscribed_apps", "POST"): wabas.subscribe,
    (Kind.WABA, "subscribed_apps", "DELETE"): wabas.unsubscribe,
    (Kind.WABA, "message_templates", "GET"): templates.list_all,
    (Kind.WABA, "message_templates", "POST"): templates.create,
    (Kind.WABA, "message_templates", "DELETE"): templates.delete,
    (Kind.TEMPLATE, "", "GET"): templates.show,
    (Kind.TEMPLATE, "", "POST"): templates.edit,
    (Kind.APP, "", "GET"): tokens.show_app,
    (Kind.BUSINESS, "owned_whatsapp_business_accounts", "GET"): wabas.list_of_business,
    (paths.DEBUG_TOKEN, "", "GET"): tokens.debug,
    (paths.ME, "", "GET"): tokens.show_me,
    (paths.ME, "businesses", "GET"): tokens.list_businesses,
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
