"""Small settings of a number: identity check, automation, commerce, and the public key of flows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any

import pydantic
from fastapi import Response

from tidings.storage.business import cloud_settings, numbers
from tidings.storage.business.cloud_settings import AUTOMATION, COMMERCE, SETTINGS, CloudSettingsRow
from tidings.storage.database import Connection, Database
from tidings.wire.codes import NOT_FOUND
from webapp.api.business_encryption import MAX_KEY, FlowKeys
from webapp.api.cloud import errors
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.settings_changes import SettingsChanges
from webapp.auth.tokens import Caller
from webapp.http import bodies
from webapp.http.bodies import Body
from webapp.http.errors import InvalidRequest

log = logging.getLogger(__name__)

# Settings of capabilities that no app of Tidings has.
_LEFT_OUT = ("calling", "payload_encryption", "storage_configuration")
_NO_CHECK = {"enable_identity_key_check": False}


class IdentityChange(Body):
    """Check of a recipient's identity."""

    enable_identity_key_check: bool


class NumberSettingsChange(Body):
    """Settings to change."""

    user_identity_change: IdentityChange


class AutomationCommand(Body):
    """Command that a user may choose."""

    command_name: Annotated[str, pydantic.Field(min_length=1, max_length=32)]
    command_description: Annotated[str, pydantic.Field(max_length=256)]


class ConversationalAutomation(Body):
    """Automation to change. Absent fields stay as they are."""

    enable_welcome_message: bool | None = None
    prompts: Annotated[list[Annotated[str, pydantic.Field(max_length=80)]], pydantic.Field(max_length=4)] | None = None
    commands: Annotated[list[AutomationCommand], pydantic.Field(max_length=30)] | None = None


class CommerceSettings(Body):
    """Commerce settings to change. Absent fields stay as they are."""

    is_cart_enabled: bool | None = None
    is_catalog_visible: bool | None = None


class CloudNumberSettings:
    """Settings of numbers that only the Cloud API has."""

    def __init__(self, database: Database, announced: SettingsChanges) -> None:
        self._database = database
        self._announced = announced

    async def find(self, account: str, kind: str) -> Mapping[str, Any]:
        """Return the settings of a kind of a number; empty when none are set."""
        async with self._database.reading() as connection:
            return await cloud_settings.find(connection, account, kind)

    async def merge(self, caller: Caller, kind: str, changes: Mapping[str, Any]) -> None:
        """Change some fields of the settings of a kind, and notify the Coreapps."""

        async def work(connection: Connection) -> None:
            # Concurrent calls may change other fields.
            await numbers.lock(connection, caller.account)
            stored = await cloud_settings.find(connection, caller.account, kind)
            await cloud_settings.put(connection, CloudSettingsRow(caller.account, kind, {**stored, **changes}))

        await self._announced.commit([caller.account], work)
        log.info("cloud.settings_changed", extra={"username": caller.username, "kind": kind})


async def show(call: CloudCall) -> Response:
    found = await call.find(CloudNumberSettings).find(call.caller.account, SETTINGS)
    return call.respond({"user_identity_change": found.get("user_identity_change", _NO_CHECK)})


async def change(call: CloudCall) -> Response:
    call.require_admin()
    parameters = await call.parameters()
    if any(parameters.get(name) is not None for name in _LEFT_OUT):
        raise errors.no_capability()
    if parameters.get("user_identity_change") is None:
        raise errors.missing("user_identity_change")
    wanted = bodies.check(NumberSettingsChange, parameters)
    await call.find(CloudNumberSettings).merge(call.caller, SETTINGS, wanted.model_dump())
    return call.success()


async def show_automation(call: CloudCall) -> Response:
    return call.respond(await call.find(CloudNumberSettings).find(call.caller.account, AUTOMATION))


async def change_automation(call: CloudCall) -> Response:
    return await _merge(call, AUTOMATION, ConversationalAutomation)


async def show_commerce(call: CloudCall) -> Response:
    found = await call.find(CloudNumberSettings).find(call.caller.account, COMMERCE)
    return call.respond({"data": [dict(found)] if found else []})


async def change_commerce(call: CloudCall) -> Response:
    return await _merge(call, COMMERCE, CommerceSettings)


async def _merge(call: CloudCall, kind: str, model: type[Body]) -> Response:
    call.require_admin()
    wanted = bodies.check(model, await call.parameters()).model_dump(exclude_none=True)
    if not wanted:
        raise errors.missing(next(iter(model.model_fields)))
    await call.find(CloudNumberSettings).merge(call.caller, kind, wanted)
    return call.success()


async def show_encryption(call: CloudCall) -> Response:
    call.require_admin()
    try:
        key = await call.find(FlowKeys).public_key(call.caller)
    except InvalidRequest as error:
        if error.problems[0].code != NOT_FOUND:
            raise
        return call.respond({"data": []})
    entry = {"business_public_key": key, "business_public_key_signature_status": "VALID"}
    return call.respond({"data": [entry]})


async def change_encryption(call: CloudCall) -> Response:
    call.require_admin()
    key = text_of(await call.parameters(), "business_public_key")
    if not key:
        raise errors.missing("business_public_key")
    if len(key) > MAX_KEY:
        raise errors.invalid(f"business_public_key: should have at most {MAX_KEY} characters")
    try:
        await call.find(FlowKeys).set_public_key(call.caller, key)
    except InvalidRequest as error:
        raise errors.invalid(error.problems[0].details) from None
    return call.success()
