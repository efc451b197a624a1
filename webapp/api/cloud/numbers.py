"""`GET /{phone-number-id}`: the business number."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from webapp.api.cloud import fields
from webapp.api.cloud.calls import Call

NODE_TYPE = "WhatsAppBusinessPhoneNumber"
_DEFAULT = (
    "verified_name",
    "code_verification_status",
    "display_phone_number",
    "quality_rating",
    "platform_type",
    "throughput",
    "webhook_configuration",
)


async def show(call: Call) -> Response:
    return call.answer(
        fields.select(await describe(call), call.query().get("fields"), node_type=NODE_TYPE, default=_DEFAULT)
    )


async def describe(call: Call) -> dict[str, Any]:
    """Return all fields of the caller's number."""
    identity = call.identity
    return {
        "verified_name": identity.account,
        "code_verification_status": "VERIFIED",
        "display_phone_number": f"+{identity.account}",
        "quality_rating": "GREEN",
        "platform_type": "CLOUD_API",
        "throughput": {"level": "STANDARD"},
        "webhook_configuration": {},
        "id": identity.phone_number_id,
    }
