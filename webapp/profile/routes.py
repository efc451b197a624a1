"""`/v1/settings/profile/about`, `/v1/settings/profile/photo` and `/v1/settings/business/profile`."""

from __future__ import annotations

import dataclasses

from fastapi import APIRouter, Request, Response

from tidings.wire.codes import PARAMETER_INVALID
from webapp import answers, bodies, openapi, pictures
from webapp.authenticator import Authenticator
from webapp.errors import InvalidRequest
from webapp.openapi import MetaAnswer
from webapp.profile import schemas
from webapp.profile.service import Profile

ABOUT = "/v1/settings/profile/about"
PHOTO = "/v1/settings/profile/photo"
BUSINESS = "/v1/settings/business/profile"


def routes(profile: Profile, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["profile"])

    @router.get(
        ABOUT,
        summary="The about text",
        response_model=schemas.AboutAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_about(request: Request) -> Response:
        text = await profile.about(await authenticator.caller(request))
        return answers.answer({"settings": {"profile": {"about": {"text": text}}}})

    @router.patch(
        ABOUT,
        summary="Change the about text",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.About),
    )
    async def change_about(request: Request) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.About, limit=max_body)
        await profile.set_about(caller, body.text)
        return answers.answer({})

    @router.get(
        PHOTO,
        summary="The profile photo, or with format=link its address",
        response_model=schemas.PhotoAnswer,
        responses={200: {"content": pictures.CONTENT}},
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_photo(request: Request, format: openapi.OnlyLink = None) -> Response:
        caller = await authenticator.caller(request)
        if format is None:
            photo = await profile.photo(caller)
            return Response(photo.content, media_type=photo.type)
        if format != "link":
            raise InvalidRequest.because(PARAMETER_INVALID, "format: should be link, or absent")
        await profile.require_photo(caller)
        link = str(request.url.replace(path=PHOTO, query="", fragment=""))
        return answers.answer({"settings": {"profile": {"photo": {"link": link}}}})

    @router.post(
        PHOTO,
        summary="Set the profile photo",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER) | {"requestBody": pictures.UPLOAD},
    )
    async def set_photo(request: Request) -> Response:
        caller = await authenticator.caller(request)
        picture = await pictures.receive(request, schemas.MAX_PHOTO)
        await profile.set_photo(caller, picture)
        return answers.answer({})

    @router.delete(
        PHOTO,
        summary="Delete the profile photo",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def delete_photo(request: Request) -> Response:
        await profile.delete_photo(await authenticator.caller(request))
        return answers.answer({})

    @router.get(
        BUSINESS,
        summary="The business profile",
        response_model=schemas.BusinessAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_business(request: Request) -> Response:
        found = await profile.business(await authenticator.caller(request))
        return answers.answer({"settings": {"business": {"profile": dataclasses.asdict(found)}}})

    @router.post(
        BUSINESS,
        summary="Set the business profile",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.BusinessProfile),
    )
    async def set_business(request: Request) -> Response:
        caller = await authenticator.caller(request)
        await profile.set_business(caller, await bodies.read(request, schemas.BusinessProfile, limit=max_body))
        return answers.answer({})

    return router
