"""JSON schemas of the Cloud API's parameters and responses, from the models and limits of its handlers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pydantic
from pydantic.json_schema import models_json_schema

from webapp.api.cloud import callbacks, fields, lists, messages, number_settings, profile, qr_images, verification
from webapp.api.messages.cloud_types import CLOUD_MODELS
from webapp.api.templates.schemas import Definition
from webapp.http.openapi.document import AcceptedBooleansSchema

Schema = Mapping[str, Any]

_REFERENCE = "#/components/schemas/{model}"
ERROR, MESSAGE, PROFILE, TEMPLATE = "GraphErrorAnswer", "MessageOrMark", "ProfileChange", "Definition"
# Fields of a message that only v1 has, or that have other limits there.
_OF_V1 = ("ttl", "biz_identity_key_hash", "biz_opaque_callback_data", "recipient_identity_key_hash")
_MAX_HASH = 64  # characters

DIGITS: Schema = {"type": "string", "pattern": "^[0-9]{1,20}$"}
TEXT: Schema = {"type": "string"}
PRODUCT: Schema = {"type": "string", "enum": ["whatsapp"]}
PIN: Schema = {"type": "string", "pattern": "^[0-9]{6}$", "examples": ["123456"]}
FIELDS: Schema = {
    "type": "string",
    "maxLength": fields.MAX_TEXT,
    "description": "Names of fields, separated by commas. `id` is always added.",
    "examples": ["id"],
}
LIMIT: Schema = {"type": "integer", "minimum": 1, "maximum": lists.MAX_LIMIT}
CURSOR: Schema = {"type": "string", "description": "Cursor of another page"}
URL: Schema = {
    "type": "string",
    "format": "uri",
    "maxLength": verification.MAX_URL,
    "examples": ["http://127.0.0.1:8080/hook"],
}
SUCCESS: Schema = {
    "type": "object",
    "required": ["success"],
    "properties": {"success": {"type": "boolean", "enum": [True]}},
    "examples": [{"success": True}],
}
OBJECT: Schema = {"type": "object", "required": ["id"], "properties": {"id": DIGITS}}
OVERRIDE: Schema = {
    "type": "object",
    "properties": {
        callbacks.OVERRIDE: {**URL, "maxLength": verification.MAX_OVERRIDE},
        "verify_token": TEXT,
    },
}


def record(required: Sequence[str], properties: Mapping[str, Schema]) -> Schema:
    """Return the schema of a JSON object."""
    return {"type": "object", **({"required": list(required)} if required else {}), "properties": dict(properties)}


def listed(entry: Schema) -> Schema:
    """Return the schema of a list in pages."""
    cursors = record(["before", "after"], {"before": TEXT, "after": TEXT})
    paging = record(["cursors"], {"cursors": cursors, "next": TEXT, "previous": TEXT})
    return record(["data"], {"data": {"type": "array", "items": entry}, "paging": paging})


def reference(name: str) -> Schema:
    """Return a reference to a schema of `components`."""
    return {"$ref": _REFERENCE.format(model=name)}


def components() -> dict[str, Any]:
    """Return the schemas that operations refer to."""
    models: list[type[pydantic.BaseModel]] = [
        *CLOUD_MODELS.values(),
        profile.ProfileChange,
        Definition,
        number_settings.NumberSettingsChange,
        number_settings.ConversationalAutomation,
        number_settings.CommerceSettings,
    ]
    _, made = models_json_schema(
        [(model, "validation") for model in models], ref_template=_REFERENCE, schema_generator=AcceptedBooleansSchema
    )
    found: dict[str, Any] = made["$defs"]
    for model in CLOUD_MODELS.values():
        _adapt_message(found[model.__name__])
    _adapt_profile(found[PROFILE])
    _adapt_template(found[TEMPLATE])
    found["ReadMark"] = _READ_MARK
    kinds = [reference(model.__name__) for model in CLOUD_MODELS.values()]
    found[MESSAGE] = {"anyOf": [*kinds, reference("ReadMark")]}
    found[ERROR] = _ERROR
    return found


def _adapt_message(schema: dict[str, Any]) -> None:
    """Replace what v1 has instead of the Cloud API's fields."""
    own: dict[str, Any] = {name: field for name, field in schema["properties"].items() if name not in _OF_V1}
    schema["properties"] = {
        "messaging_product": PRODUCT,
        **own,
        "recipient_type": {"type": "string", "enum": ["individual"]},
        "biz_opaque_callback_data": {"type": "string", "maxLength": messages.MAX_CALLBACK_DATA},
        "recipient_identity_key_hash": {"type": "string", "maxLength": _MAX_HASH},
    }
    schema["required"] = ["messaging_product", *schema.get("required", ())]


def _adapt_profile(schema: dict[str, Any]) -> None:
    schema["properties"] = {"messaging_product": PRODUCT, **schema["properties"]}
    schema["required"] = ["messaging_product"]


def _adapt_template(schema: dict[str, Any]) -> None:
    """Leave out what only v1 sets, and require what the Cloud API requires."""
    for name in ("namespace", "status"):
        schema["properties"].pop(name, None)
    schema["required"] = ["name", "language", "category", "components"]


_READ_MARK: Schema = record(
    ["messaging_product", "status", "message_id"],
    {
        "messaging_product": PRODUCT,
        "status": {"type": "string", "enum": ["read"]},
        "message_id": {"type": "string", "pattern": "^wamid\\.[A-Za-z0-9+/=]{1,500}$"},
        "typing_indicator": record(["type"], {"type": {"type": "string", "enum": ["text"]}}),
    },
)
_ERROR: Schema = record(
    ["error"],
    {
        "error": record(
            ["message", "type", "code", "fbtrace_id"],
            {
                "message": {"type": "string", "minLength": 1},
                "type": {"type": "string", "enum": ["OAuthException", "GraphMethodException"]},
                "code": {"type": "integer"},
                "error_data": record(["messaging_product", "details"], {"messaging_product": PRODUCT, "details": TEXT}),
                "error_subcode": {"type": "integer"},
                "is_transient": {"type": "boolean"},
                "error_user_title": TEXT,
                "error_user_msg": TEXT,
                "fbtrace_id": {"type": "string", "minLength": 1},
            },
        )
    },
)

BLOCKS: Schema = record(
    ["messaging_product", "block_users"],
    {
        "messaging_product": PRODUCT,
        "block_users": {"type": "array", "minItems": 1, "items": record(["user"], {"user": DIGITS})},
    },
)
QR_CODE: Schema = record(
    ["prefilled_message"],
    {
        "prefilled_message": {"type": "string", "minLength": 1, "maxLength": 140},
        "generate_qr_image": {"type": "string", "enum": list(qr_images.FORMATS)},
    },
)
SENT: Schema = record(
    ["messaging_product", "contacts", "messages"],
    {
        "messaging_product": PRODUCT,
        "contacts": {"type": "array", "items": record(["input", "wa_id"], {"input": TEXT, "wa_id": DIGITS})},
        "messages": {"type": "array", "items": record(["id"], {"id": TEXT, "message_status": TEXT})},
    },
)
FILE: Schema = record(
    ["url", "mime_type", "sha256", "file_size", "id", "messaging_product"],
    {
        "url": {"type": "string", "format": "uri"},
        "mime_type": TEXT,
        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "file_size": {"type": "integer", "minimum": 0},
        "id": DIGITS,
        "messaging_product": PRODUCT,
    },
)
SHOWN_PROFILE: Schema = record(
    ["messaging_product"],
    {
        "about": TEXT,
        "address": TEXT,
        "description": TEXT,
        "email": TEXT,
        "websites": {"type": "array", "items": TEXT},
        "vertical": TEXT,
        "messaging_product": PRODUCT,
    },
)
CREATED: Schema = record(["id", "status", "category"], {"id": DIGITS, "status": TEXT, "category": TEXT})
APP_CALLBACK: Schema = record(
    ["object", "callback_url", "active", "fields"],
    {
        "object": {"type": "string", "enum": [callbacks.OBJECT]},
        "callback_url": TEXT,
        "active": {"type": "boolean"},
        "fields": {"type": "array", "items": record(["name", "version"], {"name": TEXT, "version": TEXT})},
    },
)
