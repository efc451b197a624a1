"""Calls of the Cloud API by object, edge and method, and the edges that Tidings leaves out."""

from __future__ import annotations

from collections.abc import Mapping

from tidings.wire.cloud.identity import ObjectKind
from webapp.api.cloud import (
    blocks,
    callbacks,
    media,
    messages,
    number_settings,
    numbers,
    paths,
    pictures,
    profile,
    qr_codes,
    templates,
    tokens,
    uploads,
    wabas,
)
from webapp.api.cloud.calls import Handler

MEDIA, UPLOAD = "media", "upload"  # kinds of objects, in neither `ObjectKind` nor the names in `paths`

ENDPOINTS: Mapping[tuple[str, str, str], Handler] = {
    (ObjectKind.NUMBER, "messages", "POST"): messages.post,
    (ObjectKind.NUMBER, "media", "POST"): media.upload,
    (ObjectKind.NUMBER, "", "GET"): numbers.show,
    (ObjectKind.NUMBER, "", "POST"): numbers.change,
    (ObjectKind.NUMBER, "request_code", "POST"): numbers.request_code,
    (ObjectKind.NUMBER, "verify_code", "POST"): numbers.verify_code,
    (ObjectKind.NUMBER, "register", "POST"): numbers.register,
    (ObjectKind.NUMBER, "whatsapp_business_profile", "GET"): profile.show,
    (ObjectKind.NUMBER, "whatsapp_business_profile", "POST"): profile.change,
    (ObjectKind.NUMBER, "block_users", "GET"): blocks.list_all,
    (ObjectKind.NUMBER, "block_users", "POST"): blocks.block,
    (ObjectKind.NUMBER, "block_users", "DELETE"): blocks.unblock,
    (ObjectKind.NUMBER, "settings", "GET"): number_settings.show,
    (ObjectKind.NUMBER, "settings", "POST"): number_settings.change,
    (ObjectKind.NUMBER, "conversational_automation", "GET"): number_settings.show_automation,
    (ObjectKind.NUMBER, "conversational_automation", "POST"): number_settings.change_automation,
    (ObjectKind.NUMBER, "whatsapp_commerce_settings", "GET"): number_settings.show_commerce,
    (ObjectKind.NUMBER, "whatsapp_commerce_settings", "POST"): number_settings.change_commerce,
    (ObjectKind.NUMBER, "whatsapp_business_encryption", "GET"): number_settings.show_encryption,
    (ObjectKind.NUMBER, "whatsapp_business_encryption", "POST"): number_settings.change_encryption,
    (ObjectKind.NUMBER, "message_qrdls", "GET"): qr_codes.list_all,
    (ObjectKind.NUMBER, "message_qrdls", "POST"): qr_codes.create,
    (ObjectKind.NUMBER, "message_qrdls/{code}", "GET"): qr_codes.show,
    (ObjectKind.NUMBER, "message_qrdls/{code}", "DELETE"): qr_codes.delete,
    (ObjectKind.WABA, "", "GET"): wabas.show,
    (ObjectKind.WABA, "phone_numbers", "GET"): numbers.list_all,
    (ObjectKind.WABA, "subscribed_apps", "GET"): wabas.list_subscriptions,
    (ObjectKind.WABA, "subscribed_apps", "POST"): wabas.subscribe,
    (ObjectKind.WABA, "subscribed_apps", "DELETE"): wabas.unsubscribe,
    (ObjectKind.WABA, "message_templates", "GET"): templates.list_all,
    (ObjectKind.WABA, "message_templates", "POST"): templates.create,
    (ObjectKind.WABA, "message_templates", "DELETE"): templates.delete,
    (ObjectKind.TEMPLATE, "", "GET"): templates.show,
    (ObjectKind.TEMPLATE, "", "POST"): templates.edit,
    (ObjectKind.TEMPLATE, "unpause", "POST"): templates.unpause,
    (ObjectKind.APP, "", "GET"): tokens.show_app,
    (ObjectKind.APP, "subscriptions", "GET"): callbacks.list_all,
    (ObjectKind.APP, "subscriptions", "POST"): callbacks.subscribe,
    (ObjectKind.APP, "subscriptions", "DELETE"): callbacks.unsubscribe,
    (ObjectKind.APP, "uploads", "POST"): uploads.start,
    (ObjectKind.BUSINESS, "owned_whatsapp_business_accounts", "GET"): wabas.list_of_business,
    (ObjectKind.BUSINESS, "client_whatsapp_business_accounts", "GET"): wabas.list_of_clients,
    (paths.DEBUG_TOKEN, "", "GET"): tokens.debug,
    (paths.ME, "", "GET"): tokens.show_me,
    (paths.ME, "businesses", "GET"): tokens.list_businesses,
    (UPLOAD, "", "GET"): uploads.show,
    (UPLOAD, "", "POST"): uploads.add,
    (MEDIA, "", "GET"): media.show,
    (MEDIA, "", "DELETE"): media.delete,
    (paths.ATTACHMENTS, "attachments", "GET"): media.download,
}

LEFT_OUT = frozenset(
    {
        (ObjectKind.NUMBER, edge)
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
        (ObjectKind.WABA, edge)
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

_WITH_PART = {"message_qrdls": "message_qrdls/{code}"}


def name_of(edge: str) -> str:
    """Return an edge as the tables name it: with a placeholder for an id behind its name."""
    first, _, rest = edge.partition("/")
    return _WITH_PART.get(first, edge) if rest and "/" not in rest else edge


EDGES = frozenset((kind, edge) for kind, edge, _ in ENDPOINTS) | {(paths.ATTACHMENTS, pictures.EDGE)}
