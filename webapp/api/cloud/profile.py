"""`/{phone-number-id}/whatsapp_business_profile`: the profile that recipients see."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from fastapi import Response

from webapp.api.cloud import errors, fields
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.profile.schemas import MAX_ABOUT, Website
from webapp.api.profile.service import ProfileService
from webapp.http import bodies
from webapp.http.bodies import Body

NODE_TYPE = "WhatsAppBusinessProfile"
UNDEFINED = "UNDEFINED"
Vertical = Literal[
    "UNDEFINED",
    "OTHER",
    "AUTO",
    "BEAUTY",
    "APPAREL",
    "EDU",
    "ENTERTAIN",
    "EVENT_PLAN",
    "FINANCE",
    "GROCERY",
    "GOVT",
    "HOTEL",
    "HEALTH",
    "NONPROFIT",
    "PROF_SERVICES",
    "RETAIL",
    "TRAVEL",
    "RESTAURANT",
    "NOT_A_BIZ",
]
_VERTICALS = Vertical.__args__  # type: ignore[attr-defined]
_ALL = ("about", "address", "description", "email", "profile_picture_url", "websites", "vertical", "messaging_product")


class ProfileChange(Body):
    """Fields to change. Absent fields stay as they are."""

    about: Annotated[str, pydantic.Field(max_length=MAX_ABOUT)] | None = None
    address: Annotated[str, pydantic.Field(max_length=256)] | None = None
    description: Annotated[str, pydantic.Field(max_length=512)] | None = None
    email: Annotated[str, pydantic.Field(max_length=128)] | None = None
    vertical: Vertical | None = None
    websites: Annotated[list[Website], pydantic.Field(max_length=2)] | None = None


async def show(call: CloudCall) -> Response:
    profile = call.find(ProfileService)
    stored, about = await profile.business(call.caller), await profile.about(call.caller)
    found: dict[str, Any] = {
        "about": about,
        "address": stored.address,
        "description": stored.description,
        "email": stored.email,
        "websites": list(stored.websites),
    }
    found = {name: value for name, value in found.items() if value}
    found |= {
        "vertical": stored.vertical if stored.vertical in _VERTICALS else UNDEFINED,
        "messaging_product": "whatsapp",
    }
    asked = call.query().get("fields")
    if asked:
        chosen = fields.select(found, asked, node_type=NODE_TYPE, default=_ALL, optional=(*_ALL, "id"))
        found = {**chosen, "messaging_product": "whatsapp"}
    return call.answer({"data": [found]})


async def change(call: CloudCall) -> Response:
    parameters = await call.parameters()
    if text_of(parameters, "messaging_product").lower() != "whatsapp":
        raise errors.missing("messaging_product")
    if parameters.get("profile_picture_handle"):
        # Handles come from resumable uploads, which are not served.
        raise errors.invalid("profile_picture_handle: is not the handle of an upload")
    if isinstance(parameters.get("vertical"), str):
        parameters["vertical"] = parameters["vertical"].upper()
    if isinstance(parameters.get("websites"), str):
        parameters["websites"] = [parameters["websites"]]
    wanted = bodies.check(ProfileChange, parameters)
    await call.find(ProfileService).merge(call.caller, wanted.model_dump(exclude_none=True))
    return call.success()
