"""Descriptions of the Cloud API's calls: parameters, body and response of each endpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tidings.wire.cloud.identity import ObjectKind
from webapp.api.cloud import callbacks, paths, uploads
from webapp.api.cloud.endpoints import MEDIA
from webapp.api.cloud.openapi import schemas
from webapp.api.cloud.openapi.schemas import Schema

_WORDS: Mapping[str, str] = {"GET": "Show", "POST": "Change", "DELETE": "Delete"}


@dataclasses.dataclass(frozen=True, slots=True)
class CallDescription:
    """Summary, query and response of a call."""

    summary: str
    response: Schema = dataclasses.field(default_factory=lambda: {"type": "object"})
    query: Mapping[str, Schema] = dataclasses.field(default_factory=dict)
    required: tuple[str, ...] = ()  # parameters in `query` that are required
    body: Schema | None = None  # schema of a JSON body; `None` for none
    form: Schema | None = None  # schema of a `multipart/form-data` body; `None` for none
    is_bytes: bool = False  # whether the response is a file instead of JSON


def undescribed(method: str, route: str) -> CallDescription:
    """Return the description of a call that `CALLS` does not have."""
    body: Schema | None = {"type": "object"} if method == "POST" else None
    return CallDescription(f"{_WORDS.get(method, method)} {route}", body=body, query={"fields": schemas.FIELDS})


_FIELDS: Mapping[str, Schema] = {"fields": schemas.FIELDS}
_PAGE: Mapping[str, Schema] = {
    "limit": schemas.LIMIT,
    "after": schemas.CURSOR,
    "before": schemas.CURSOR,
    **_FIELDS,
}
_FILTERS: Mapping[str, Schema] = dict.fromkeys(
    ("name", "name_or_content", "status", "category", "language", "quality_score", "summary"), schemas.TEXT
)
_OF_NUMBER: Mapping[str, Schema] = {"phone_number_id": schemas.DIGITS}
_SUBSCRIPTION: Mapping[str, Schema] = {
    "object": {"type": "string", "enum": [callbacks.OBJECT]},
    "fields": {"type": "string", "examples": ["messages"]},
}
_UPLOAD: Mapping[str, Any] = schemas.record(
    ["messaging_product", "file"],
    {
        "messaging_product": schemas.PRODUCT,
        "type": {"type": "string", "examples": ["image/png"]},
        "file": {"type": "string", "format": "binary"},
    },
)

CALLS: Mapping[tuple[str, str, str], CallDescription] = {
    (ObjectKind.NUMBER, "messages", "POST"): CallDescription(
        "Send a message, or mark a received one as read",
        {"anyOf": [schemas.SENT, schemas.SUCCESS]},
        body=schemas.reference(schemas.MESSAGE),
    ),
    (ObjectKind.NUMBER, "media", "POST"): CallDescription("Upload a file", schemas.OBJECT, form=_UPLOAD),
    (ObjectKind.NUMBER, "", "GET"): CallDescription("Show a number", schemas.OBJECT, query=_FIELDS),
    (ObjectKind.NUMBER, "", "POST"): CallDescription(
        "Set the PIN of a number, or its callback",
        schemas.SUCCESS,
        body=schemas.record([], {"pin": schemas.PIN, "webhook_configuration": schemas.OVERRIDE}),
    ),
    (ObjectKind.NUMBER, "request_code", "POST"): CallDescription(
        "Request a registration code",
        schemas.SUCCESS,
        query={"code_method": {"type": "string", "enum": ["SMS", "VOICE"]}, "language": schemas.TEXT},
        required=("code_method",),
    ),
    (ObjectKind.NUMBER, "verify_code", "POST"): CallDescription(
        "Verify a registration code",
        schemas.SUCCESS,
        query={"code": {"type": "string", "pattern": "^[0-9]{6}$"}},
        required=("code",),
    ),
    (ObjectKind.NUMBER, "register", "POST"): CallDescription(
        "Register a number with its PIN",
        schemas.SUCCESS,
        body=schemas.record(["messaging_product", "pin"], {"messaging_product": schemas.PRODUCT, "pin": schemas.PIN}),
    ),
    (ObjectKind.NUMBER, "whatsapp_business_profile", "GET"): CallDescription(
        "Show the profile", schemas.listed(schemas.SHOWN_PROFILE), query=_FIELDS
    ),
    (ObjectKind.NUMBER, "whatsapp_business_profile", "POST"): CallDescription(
        "Change the profile", schemas.SUCCESS, body=schemas.reference(schemas.PROFILE)
    ),
    (ObjectKind.NUMBER, "block_users", "POST"): CallDescription("Block users", body=schemas.BLOCKS),
    (ObjectKind.NUMBER, "block_users", "DELETE"): CallDescription("Unblock users", body=schemas.BLOCKS),
    (ObjectKind.NUMBER, "settings", "POST"): CallDescription(
        "Change settings of a number", schemas.SUCCESS, body=schemas.reference("NumberSettingsChange")
    ),
    (ObjectKind.NUMBER, "conversational_automation", "POST"): CallDescription(
        "Change prompts and commands", schemas.SUCCESS, body=schemas.reference("ConversationalAutomation")
    ),
    (ObjectKind.NUMBER, "whatsapp_commerce_settings", "POST"): CallDescription(
        "Change settings of the shop", schemas.SUCCESS, body=schemas.reference("CommerceSettings")
    ),
    (ObjectKind.NUMBER, "whatsapp_business_encryption", "POST"): CallDescription(
        "Set the key of flows",
        schemas.SUCCESS,
        body=schemas.record(["business_public_key"], {"business_public_key": schemas.TEXT}),
    ),
    (ObjectKind.NUMBER, "message_qrdls", "POST"): CallDescription("Create a QR code", body=schemas.QR_CODE),
    (ObjectKind.APP, "uploads", "POST"): CallDescription(
        "Start an upload",
        schemas.record(["id"], {"id": schemas.TEXT}),
        query={
            "file_length": {"type": "integer", "minimum": 1, "maximum": 1000},
            "file_type": {"type": "string", "enum": list(uploads.TYPES)},
        },
        required=("file_length", "file_type"),
    ),
    (ObjectKind.WABA, "", "GET"): CallDescription("Show a WABA", schemas.OBJECT, query=_FIELDS),
    (ObjectKind.WABA, "phone_numbers", "GET"): CallDescription(
        "List the numbers of a WABA", schemas.listed(schemas.OBJECT), query=_PAGE
    ),
    (ObjectKind.WABA, "subscribed_apps", "GET"): CallDescription(
        "List the apps that are subscribed to a WABA",
        schemas.listed(
            schemas.record(
                ["whatsapp_business_api_data"],
                {"whatsapp_business_api_data": schemas.OBJECT, callbacks.OVERRIDE: schemas.TEXT},
            )
        ),
    ),
    (ObjectKind.WABA, "subscribed_apps", "POST"): CallDescription(
        "Subscribe the app to a WABA", schemas.SUCCESS, body=schemas.OVERRIDE
    ),
    (ObjectKind.WABA, "subscribed_apps", "DELETE"): CallDescription("End the subscription of the app", schemas.SUCCESS),
    (ObjectKind.WABA, "message_templates", "GET"): CallDescription(
        "List the templates of a WABA", schemas.listed(schemas.OBJECT), query={**_PAGE, **_FILTERS}
    ),
    (ObjectKind.WABA, "message_templates", "POST"): CallDescription(
        "Create a template", schemas.CREATED, body=schemas.reference(schemas.TEMPLATE)
    ),
    (ObjectKind.WABA, "message_templates", "DELETE"): CallDescription(
        "Delete a template, in all languages or in one",
        schemas.SUCCESS,
        query={"name": schemas.TEXT, "hsm_id": schemas.DIGITS},
        required=("name",),
    ),
    (ObjectKind.TEMPLATE, "", "GET"): CallDescription("Show a template", schemas.OBJECT, query=_FIELDS),
    (ObjectKind.TEMPLATE, "", "POST"): CallDescription(
        "Change a template",
        schemas.SUCCESS,
        body=schemas.record(
            ["components"], {"components": {"type": "array", "items": {"type": "object"}}, "category": schemas.TEXT}
        ),
    ),
    (ObjectKind.APP, "", "GET"): CallDescription("Show an app", schemas.OBJECT, query=_FIELDS),
    (ObjectKind.APP, "subscriptions", "GET"): CallDescription(
        "Show the callback of an app", schemas.listed(schemas.APP_CALLBACK)
    ),
    (ObjectKind.APP, "subscriptions", "POST"): CallDescription(
        "Set the callback of an app",
        schemas.SUCCESS,
        body=schemas.record(
            ["object", "callback_url", "verify_token"],
            {**_SUBSCRIPTION, "callback_url": schemas.URL, "verify_token": schemas.TEXT},
        ),
    ),
    (ObjectKind.APP, "subscriptions", "DELETE"): CallDescription(
        "Remove the callback of an app, or some of its fields",
        schemas.SUCCESS,
        query=_SUBSCRIPTION,
        required=("object",),
    ),
    (ObjectKind.BUSINESS, "owned_whatsapp_business_accounts", "GET"): CallDescription(
        "List the WABAs of a portfolio", schemas.listed(schemas.OBJECT), query=_PAGE
    ),
    (paths.DEBUG_TOKEN, "", "GET"): CallDescription(
        "Describe a token",
        schemas.record(["data"], {"data": schemas.record(["is_valid"], {"is_valid": {"type": "boolean"}})}),
        query={"input_token": schemas.TEXT},
        required=("input_token",),
    ),
    (paths.ME, "", "GET"): CallDescription("Show the user of the token", schemas.OBJECT, query=_FIELDS),
    (paths.ME, "businesses", "GET"): CallDescription(
        "List the portfolios of the user", schemas.listed(schemas.OBJECT), query=_PAGE
    ),
    (MEDIA, "", "GET"): CallDescription("Show a file, with the URL of its bytes", schemas.FILE, query=_OF_NUMBER),
    (MEDIA, "", "DELETE"): CallDescription("Delete a file", schemas.SUCCESS, query=_OF_NUMBER),
    (paths.ATTACHMENTS, "attachments", "GET"): CallDescription(
        "Download the bytes of a file",
        query=dict.fromkeys(("mid", "ext", "hash"), schemas.TEXT),
        required=("mid", "ext", "hash"),
        is_bytes=True,
    ),
}
