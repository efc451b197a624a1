"""`/{phone-number-id}/whatsapp_business_profile`: the profile that recipients see."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pydantic
from fastapi import Response

from tidings.media import kinds
from tidings.wire.cloud import verticals
from webapp.api.cloud import errors, fields, handles, pictures
from webapp.api.cloud.calls import CloudCall, text_of
from webapp.api.cloud.pictures import PictureLinks
from webapp.api.media.service import MediaStore
from webapp.api.profile.schemas import MAX_ABOUT, MAX_PHOTO, Website
from webapp.api.profile.service import ProfileService
from webapp.http import bodies
from webapp.http.bodies import Body
from webapp.http.errors import InvalidRequest
from webapp.http.pictures import UploadedPicture, check

NODE_TYPE = "WhatsAppBusinessProfile"
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
    picture = ""
    if await profile.has_photo(call.caller):
        picture = call.find(PictureLinks).url(call.api_url, call.identity.phone_number_id, pictures.PROFILE)
    found: dict[str, Any] = {
        "about": about,
        "address": stored.address,
        "description": stored.description,
        "email": stored.email,
        "profile_picture_url": picture,
        "websites": list(stored.websites),
    }
    found = {name: value for name, value in found.items() if value}
    found |= {
        "vertical": verticals.to_cloud(stored.vertical) or verticals.UNDEFINED,
        "messaging_product": "whatsapp",
    }
    requested = call.query().get("fields")
    if requested:
        chosen = fields.select(found, requested, node_type=NODE_TYPE, default=_ALL, optional=(*_ALL, "id"))
        found = {**chosen, "messaging_product": "whatsapp"}
    return call.respond({"data": [found]})


async def change(call: CloudCall) -> Response:
    parameters = await call.parameters()
    if text_of(parameters, "messaging_product").lower() != "whatsapp":
        raise errors.missing("messaging_product")
    if isinstance(parameters.get("vertical"), str):
        parameters["vertical"] = parameters["vertical"].upper()
    if isinstance(parameters.get("websites"), str):
        parameters["websites"] = [parameters["websites"]]
    try:
        wanted = bodies.check(ProfileChange, parameters)
    except InvalidRequest as error:
        raise errors.invalid(error.problems[0].details) from None
    handle, profile = parameters.get("profile_picture_handle"), call.find(ProfileService)
    picture = await _picture(call, handle) if handle else None
    await profile.merge(call.caller, wanted.model_dump(exclude_none=True))
    if picture is not None:
        await profile.set_photo(call.caller, picture)
    return call.success()


async def _picture(call: CloudCall, handle: object) -> UploadedPicture:
    """Return the picture that a handle names. Raises `GraphError`."""
    found = await handles.find(call, handle, [call.caller.account])
    if found is None:
        raise errors.invalid("profile_picture_handle: is not the handle of an upload of this account")
    if found.kind != kinds.IMAGE or found.size > MAX_PHOTO:
        raise errors.invalid(f"profile_picture_handle: should be a picture of at most {MAX_PHOTO} bytes")
    _, reader = await call.find(MediaStore).open(call.caller, found.id)
    try:
        return check(await reader.read(found.size), MAX_PHOTO)
    finally:
        await reader.close()
