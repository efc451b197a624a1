"""The WABA: its object, and the apps that are subscribed to it."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from tidings.storage.business import templates
from webapp.api.cloud import callbacks, fields
from webapp.api.cloud.calls import CloudCall
from webapp.api.cloud.limits import NumberSendingLimits
from webapp.api.cloud.lists import listed
from webapp.api.cloud.subscriptions import Subscriptions
from webapp.api.cloud.tokens import APP_NAME

NODE_TYPE = "WhatsAppBusinessAccount"
_DEFAULT = ("id", "name", "timezone_id", "message_template_namespace")
_OPTIONAL = (
    "analytics",
    "auth_international_rate_eligibility",
    "conversation_analytics",
    "disable_marketing_messages_on_cloud_api",
    "marketing_messages_lite_api_status",
    "marketing_messages_onboarding_status",
    "on_behalf_of_business_info",
    "owner_business_info",
    "pricing_analytics",
    "primary_business_location",
    "primary_funding_id",
    "purchase_order_number",
    "subscribed_apps",
)


def describe(call: CloudCall) -> dict[str, Any]:
    """Return all fields of the caller's WABA."""
    identity = call.identity
    return {
        "id": identity.waba_id,
        "name": f"{APP_NAME} {identity.waba_owner}",
        "timezone_id": "0",
        "message_template_namespace": templates.default_namespace(identity.waba_owner),
        "account_review_status": "APPROVED",
        "business_verification_status": "not_verified",
        "ownership_type": "SELF",
        "currency": "USD",
        "country": "US",
        "status": "ACTIVE",
        "is_enabled_for_insights": False,
        "whatsapp_business_manager_messaging_limit": call.find(NumberSendingLimits).of(identity.account).tier,
        "health_status": {
            "can_send_message": "AVAILABLE",
            "entities": [{"entity_type": "WABA", "id": identity.waba_id, "can_send_message": "AVAILABLE"}],
        },
    }


async def show(call: CloudCall) -> Response:
    requested = call.query().get("fields")
    return call.respond(
        fields.select(describe(call), requested, node_type=NODE_TYPE, default=_DEFAULT, optional=_OPTIONAL)
    )


async def list_of_business(call: CloudCall) -> Response:
    requested = call.query().get("fields")
    found = fields.select(describe(call), requested, node_type=NODE_TYPE, default=_DEFAULT, optional=_OPTIONAL)
    return call.respond(listed([found], [call.identity.waba_id], call))


async def list_of_clients(call: CloudCall) -> Response:
    """Return no WABA: all belong to the business itself."""
    return call.respond(listed([], [], call))


async def subscribe(call: CloudCall) -> Response:
    call.require_admin()
    await callbacks.change_override(call, call.identity.waba_id, await call.parameters())
    await call.find(Subscriptions).add(call.identity)
    return call.success()


async def unsubscribe(call: CloudCall) -> Response:
    call.require_admin()
    await call.find(Subscriptions).remove(call.identity)
    return call.success()


async def list_subscriptions(call: CloudCall) -> Response:
    data = []
    if await call.find(Subscriptions).exists(call.identity):
        entry: dict[str, Any] = {
            "whatsapp_business_api_data": {"link": "", "name": APP_NAME, "id": call.identity.app_id}
        }
        found = await call.find(Subscriptions).callbacks([call.identity.waba_id])
        if found and call.caller.is_admin:
            entry[callbacks.OVERRIDE] = found[call.identity.waba_id].url
        data.append(entry)
    return call.respond({"data": data})
