"""`/v1/settings/profile/about`, `/v1/settings/profile/photo` and `/v1/settings/business/profile`."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Request, Response

from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.profile import schemas
from webapp.api.profile.service import ProfileService
from webapp.auth.authenticator import AnyCaller
from webapp.http import pictures, responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import part
from webapp.http.errors import InvalidRequest
from webapp.http.openapi import document
from webapp.http.openapi.document import RESPONSES, MetaResponse
from webapp.http.pictures import UploadedPicture, picture_body

ABOUT = "/v1/settings/profile/about"
PHOTO = "/v1/settings/profile/photo"
BUSINESS = "/v1/settings/business/profile"


router = APIRouter(tags=["profile"], responses=RESPONSES)
Service = Annotated[ProfileService, part(ProfileService)]


@router.get(ABOUT, summary="The about text", response_model=schemas.AboutResponse)
async def get_about(caller: AnyCaller, profile: Service) -> Response:
    text = await profile.about(caller)
    return responses.success({"settings": {"profile": {"about": {"text": text}}}})


@router.patch(ABOUT, summary="Change the about text", response_model=MetaResponse)
async def change_about(
    caller: AnyCaller, body: Annotated[schemas.About, json_body(schemas.About)], profile: Service
) -> Response:
    await profile.set_about(caller, body.text)
    return responses.success({})


@router.get(
    PHOTO,
    summary="Get the profile photo, or its URL with format=link",
    response_model=schemas.PhotoResponse,
    responses={200: {"content": pictures.CONTENT}},
)
async def get_photo(
    caller: AnyCaller, profile: Service, request: Request, format: document.OnlyLink = None
) -> Response:
    if format is None:
        photo = await profile.photo(caller)
        return Response(photo.content, media_type=photo.type)
    if format != "link":
        raise InvalidRequest.because(PARAMETER_INVALID, "format: should be link, or absent")
    await profile.require_photo(caller)
    link = str(request.url.replace(path=PHOTO, query="", fragment=""))
    return responses.success({"settings": {"profile": {"photo": {"link": link}}}})


@router.post(
    PHOTO, summary="Set the profile photo", response_model=MetaResponse, openapi_extra={"requestBody": pictures.UPLOAD}
)
async def set_photo(
    caller: AnyCaller, picture: Annotated[UploadedPicture, picture_body(schemas.MAX_PHOTO)], profile: Service
) -> Response:
    await profile.set_photo(caller, picture)
    return responses.success({})


@router.delete(PHOTO, summary="Delete the profile photo", response_model=MetaResponse)
async def delete_photo(caller: AnyCaller, profile: Service) -> Response:
    await profile.delete_photo(caller)
    return responses.success({})


@router.get(BUSINESS, summary="The business profile", response_model=schemas.BusinessResponse)
async def get_business(caller: AnyCaller, profile: Service) -> Response:
    found = await profile.business(caller)
    return responses.success({"settings": {"business": {"profile": dataclasses.asdict(found)}}})


@router.post(BUSINESS, summary="Set the business profile", response_model=MetaResponse)
async def set_business(
    caller: AnyCaller, body: Annotated[schemas.BusinessProfile, json_body(schemas.BusinessProfile)], profile: Service
) -> Response:
    await profile.set_business(caller, body)
    return responses.success({})
