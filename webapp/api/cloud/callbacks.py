"""Callbacks of webhooks: that of an app, and those of a WABA and a number that override it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from fastapi import Response

from tidings.keys.cloud_urls import CloudCallback
from tidings.wire.cloud.identity import NumberIdentity
from webapp.api.cloud import errors
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.subscriptions import Subscriptions
from webapp.api.cloud.verification import MAX_OVERRIDE, MAX_URL, CallbackVerifier, check_url

OBJECT = "whatsapp_business_account"
# Fields that an app may subscribe to. docs/cloud-api.md names those that are posted.
FIELDS = (
    "account_alerts",
    "account_review_update",
    "account_update",
    "business_capability_update",
    "business_username_update",
    "calls",
    "flows",
    "group_lifecycle_update",
    "group_participants_update",
    "group_settings_update",
    "group_status_update",
    "history",
    "message_template_components_update",
    "message_template_quality_update",
    "message_template_status_update",
    "messages",
    "partner_solutions",
    "payment_configuration_update",
    "phone_number_name_update",
    "phone_number_quality_update",
    "security",
    "smb_app_state_sync",
    "smb_message_echoes",
    "template_category_update",
    "user_preferences",
)
MAX_FIELDS = 64
OVERRIDE = "override_callback_uri"


async def subscribe(call: CloudCall) -> Response:
    """Set the callback of an app, and the fields that it gets."""
    call.require_admin()
    parameters = await call.parameters()
    _require_object(parameters)
    url = text_of(parameters, "callback_url")
    named = read_fields(parameters.get("fields"))
    if url:
        check_url("callback_url", url, MAX_URL)
        await _verify(call, url, parameters)

    def change(known: CloudCallback | None) -> CloudCallback:
        if not url and known is None:
            raise errors.missing("callback_url")
        present = known or CloudCallback("", "")
        subscribed = tuple(sorted({*named, *present.fields})) or ("messages",)
        return CloudCallback(url or present.url, call.target.version.served, subscribed, api_url=call.api_url)

    await call.find(Subscriptions).change_callback(call.identity, call.target.node, change)
    return call.success()


async def unsubscribe(call: CloudCall) -> Response:
    """Remove fields from the callback of an app, or the callback."""
    call.require_admin()
    parameters = await call.parameters()
    _require_object(parameters)
    named = read_fields(parameters.get("fields"))

    def change(known: CloudCallback | None) -> CloudCallback | None:
        left = tuple(name for name in known.fields if name not in named) if known is not None and named else ()
        return msgspec.structs.replace(known, fields=left) if known is not None and left else None

    await call.find(Subscriptions).change_callback(call.identity, call.target.node, change)
    return call.success()


async def list_all(call: CloudCall) -> Response:
    call.require_admin()
    found = await call.find(Subscriptions).callbacks([call.target.node])
    data = [
        {
            "object": OBJECT,
            "callback_url": callback.url,
            "active": True,
            "fields": [{"name": name, "version": callback.version} for name in callback.fields],
        }
        for callback in found.values()
    ]
    return call.respond({"data": data})


async def change_override(call: CloudCall, node_id: str, parameters: Mapping[str, Any]) -> None:
    """Set the callback that overrides that of the app; remove it if `override_callback_uri` is empty or absent.

    Raises `GraphError`.
    """
    url = text_of(parameters, OVERRIDE)
    callback = None
    if url:
        check_url(OVERRIDE, url, MAX_OVERRIDE)
        await _verify(call, url, parameters)
        callback = CloudCallback(url, call.target.version.served, api_url=call.api_url)
    await call.find(Subscriptions).change_callback(call.identity, node_id, lambda known: callback)


async def configuration(call: CloudCall, identity: NumberIdentity) -> Mapping[str, str]:
    """Return the callbacks that concern a number, as `webhook_configuration` shows them to administrators.

    Others see none: a URL may contain a password.
    """
    if not call.caller.is_admin:
        return {}
    names = {
        identity.phone_number_id: "phone_number",
        identity.waba_id: OBJECT,
        identity.app_id: "application",
    }
    found = await call.find(Subscriptions).callbacks(list(names))
    return {name: found[node_id].url for node_id, name in names.items() if node_id in found}


def read_fields(given: object) -> tuple[str, ...]:
    """Return the names of fields in a list or a text with commas. Raises `GraphError` for an unknown field."""
    if given is None:
        return ()
    names = given.split(",") if isinstance(given, str) else given
    if not isinstance(names, list) or len(names) > MAX_FIELDS:
        raise errors.invalid("fields: should be a list of fields")
    found = tuple(name.strip() for name in names if isinstance(name, str) and name.strip())
    for name in found:
        if name not in FIELDS:
            raise errors.not_one_of("fields", FIELDS, name)
    return found


def _require_object(parameters: Mapping[str, Any]) -> None:
    given = text_of(parameters, "object")
    if not given:
        raise errors.missing("object")
    if given != OBJECT:
        raise errors.not_one_of("object", (OBJECT,), given)


async def _verify(call: CloudCall, url: str, parameters: Mapping[str, Any]) -> None:
    token = text_of(parameters, "verify_token")
    if not token:
        raise errors.missing("verify_token")
    await call.find(CallbackVerifier).verify(call.caller.account, url, token)
