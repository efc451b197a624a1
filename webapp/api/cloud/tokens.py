"""`GET /debug_token` and `GET /me`: user, validity and permissions of a token."""

from __future__ import annotations

from typing import Any

from fastapi import Response

from tidings.wire.cloud.codes import CODES, TOKEN_INVALID
from tidings.wire.cloud.identity import ObjectKind, derived_id
from webapp.api.cloud import errors, fields
from webapp.api.cloud.access import OPEN_USER
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.lists import listed
from webapp.auth.tokens import Caller, Tokens
from webapp.http.errors import Unauthenticated

APP_NAME = "Tidings"
_MESSAGING, _MANAGEMENT = "whatsapp_business_messaging", "whatsapp_business_management"


async def debug(call: CloudCall) -> Response:
    given = text_of(call.query(), "input_token")
    if not given:
        raise errors.missing("input_token")
    try:
        caller = await call.find(Tokens).identify(given.encode())
        identity = call.directory.find(caller.account)
    except Unauthenticated:
        # Where any token is accepted, this one is.
        caller, identity = call.caller, call.identity if call.caller.username == OPEN_USER else None
    if identity is None:
        problem = {"code": TOKEN_INVALID, "message": CODES[TOKEN_INVALID].title}
        return call.respond({"data": {"error": problem, "is_valid": False, "scopes": []}})
    scopes = [_MANAGEMENT, _MESSAGING] if caller.is_admin else [_MESSAGING]
    described: dict[str, Any] = {
        "app_id": identity.app_id,
        "type": "SYSTEM_USER",
        "application": APP_NAME,
        "data_access_expires_at": 0,
        "expires_at": caller.expires_at,
        "is_valid": True,
        "issued_at": caller.issued_at,
        "scopes": scopes,
        "granular_scopes": [{"scope": scope, "target_ids": [identity.waba_id]} for scope in scopes],
        "user_id": user_id(caller),
    }
    return call.respond({"data": described})


def user_id(caller: Caller) -> str:
    return derived_id(ObjectKind.USER, caller.account, caller.username)


async def show_me(call: CloudCall) -> Response:
    found = {"name": call.caller.username, "id": user_id(call.caller)}
    return call.respond(fields.select(found, call.query().get("fields"), node_type="User", default=("name",)))


async def list_businesses(call: CloudCall) -> Response:
    business = {"id": call.identity.business_id, "name": APP_NAME}
    return call.respond(listed([business], [call.identity.business_id], call))


async def show_app(call: CloudCall) -> Response:
    found = {"link": "", "name": APP_NAME, "id": call.identity.app_id}
    return call.respond(
        fields.select(found, call.query().get("fields"), node_type="Application", default=("link", "name"))
    )
