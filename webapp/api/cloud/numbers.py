"""The business number: its object, its registration and its PIN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import Response

from tidings.storage.business.cloud_settings import AUTOMATION
from tidings.wire.addresses import is_digits
from tidings.wire.cloud.codes import PIN_MISMATCH, VERIFY_AGAIN
from tidings.wire.cloud.identity import NumberIdentity
from webapp.api.account.service import RegistrationService
from webapp.api.cloud import callbacks, errors, fields
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.limits import NumberSendingLimits
from webapp.api.cloud.lists import listed
from webapp.api.cloud.number_settings import CloudNumberSettings

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
_IN_LISTS = ("verified_name", "display_phone_number", "id", "quality_rating")
# Known fields that no number of Tidings has.
_OPTIONAL = (
    "certificate",
    "new_certificate",
    "conversational_automation",
    "country_code",
    "country_dial_code",
    "last_onboarded_time",
    "username",
)
_PIN_DIGITS = 6


async def show(call: CloudCall) -> Response:
    chosen = fields.select(
        await describe(call, call.identity),
        call.query().get("fields"),
        node_type=NODE_TYPE,
        default=_DEFAULT,
        optional=_OPTIONAL,
    )
    return call.respond(chosen)


async def list_all(call: CloudCall) -> Response:
    """List the numbers of the WABA, whichever of them the token belongs to."""
    # The directory may change during the queries.
    identities = [call.directory.of(account) for account in call.directory.accounts_of(call.identity.waba_id)]
    identities.sort(key=lambda identity: identity.phone_number_id)
    page = listed(identities, [identity.phone_number_id for identity in identities], call)
    requested = call.query().get("fields")
    page["data"] = [
        fields.select(
            await describe(call, identity), requested, node_type=NODE_TYPE, default=_IN_LISTS, optional=_OPTIONAL
        )
        for identity in page["data"]
    ]
    return call.respond(page)


async def describe(call: CloudCall, identity: NumberIdentity) -> Mapping[str, Any]:
    """Return all fields of a number."""
    state = await call.find(RegistrationService).state(identity.account)
    automation = await call.find(CloudNumberSettings).find(identity.account, AUTOMATION)
    sending = call.find(NumberSendingLimits)
    limits = sending.of(identity.account)
    able = "AVAILABLE" if state.registered else "BLOCKED"
    return {
        "id": identity.phone_number_id,
        "is_official_business_account": False,
        "display_phone_number": display(identity.account),
        "verified_name": display(identity.account),
        "account_mode": "LIVE" if limits.test_recipients is None else "SANDBOX",
        "quality_rating": "GREEN",
        "quality_score": {"score": "GREEN"},
        "code_verification_status": "VERIFIED" if state.registered else "NOT_VERIFIED",
        "eligibility_for_api_business_global_search": "NON_ELIGIBLE_VERIFIED_LEVEL",
        "is_pin_enabled": state.has_pin,
        "is_on_biz_app": False,
        "is_preverified_number": False,
        "name_status": "AVAILABLE_WITHOUT_REVIEW",
        "new_name_status": "NONE",
        "status": "CONNECTED" if state.registered else "DISCONNECTED",
        "search_visibility": "NON_VISIBLE",
        "messaging_limit_tier": limits.tier,
        "whatsapp_business_manager_messaging_limit": limits.tier,
        "platform_type": "CLOUD_API",
        "throughput": {"level": sending.throughput(identity.account)},
        "webhook_configuration": await callbacks.configuration(call, identity),
        **({AUTOMATION: automation} if automation else {}),
        "health_status": {
            "can_send_message": able,
            "entities": [
                {"entity_type": "PHONE_NUMBER", "id": identity.phone_number_id, "can_send_message": able},
                {"entity_type": "WABA", "id": identity.waba_id, "can_send_message": "AVAILABLE"},
                {"entity_type": "BUSINESS", "id": identity.business_id, "can_send_message": "AVAILABLE"},
                {"entity_type": "APP", "id": identity.app_id, "can_send_message": "AVAILABLE"},
            ],
        },
    }


def display(account: str) -> str:
    """Return a number for people: `+1 555-000-0000` in North America, else `+` and the digits."""
    if len(account) == 11 and account[0] == "1":
        return f"+1 {account[1:4]}-{account[4:7]}-{account[7:]}"
    return f"+{account}"


async def change(call: CloudCall) -> Response:
    """Set the PIN of the number, or its callback."""
    call.require_admin()
    parameters = await call.parameters()
    webhook = parameters.get("webhook_configuration")
    pin = _pin(parameters) if webhook is None or "pin" in parameters else None
    if webhook is not None:
        if not isinstance(webhook, dict):
            raise errors.invalid("webhook_configuration: should be an object")
        await callbacks.change_override(call, call.identity.phone_number_id, webhook)
    if pin is not None:
        await call.find(RegistrationService).set_pin(call.caller, pin)
    return call.success()


async def request_code(call: CloudCall) -> Response:
    call.require_admin()
    parameters = await call.parameters()
    method = text_of(parameters, "code_method").upper()
    if not method:
        raise errors.missing("code_method")
    if method not in ("SMS", "VOICE"):
        raise errors.not_one_of("code_method", ("SMS", "VOICE"), method)
    await call.find(RegistrationService).send_code(call.caller)
    return call.success()


async def verify_code(call: CloudCall) -> Response:
    call.require_admin()
    code = text_of(await call.parameters(), "code").replace("-", "")
    if not code:
        raise errors.missing("code")
    if not is_digits(code, 6, 16):
        raise errors.invalid("code: should be the digits of a registration code")
    await call.find(RegistrationService).verify(call.caller, code)
    return call.success()


async def register(call: CloudCall) -> Response:
    """Register the number with its PIN, or set the PIN of a number that has none."""
    call.require_admin()
    parameters = await call.parameters()
    if text_of(parameters, "messaging_product").lower() != "whatsapp":
        raise errors.missing("messaging_product")
    if parameters.get("backup") is not None:
        raise errors.no_capability()
    pin = _pin(parameters)
    registration = call.find(RegistrationService)
    state = await registration.state(call.caller.account)
    if not state.registered:
        raise errors.coded(VERIFY_AGAIN, "request a code with request_code, and verify it with verify_code")
    if not state.has_pin:
        await registration.set_pin(call.caller, pin)
    elif not await registration.is_pin(call.caller, pin):
        raise errors.coded(PIN_MISMATCH, "the PIN is not the one of this number")
    return call.success()


def _pin(parameters: Mapping[str, Any]) -> str:
    pin = text_of(parameters, "pin")
    if not pin:
        raise errors.missing("pin")
    if not is_digits(pin, _PIN_DIGITS, _PIN_DIGITS):
        raise errors.invalid(f"pin: should have {_PIN_DIGITS} digits")
    return pin
