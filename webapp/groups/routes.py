"""`/v1/groups` and what is below it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from tidings.wire.codes import PARAMETER_INVALID
from webapp import answers, bodies, openapi, pictures
from webapp.authenticator import Authenticator
from webapp.errors import InvalidRequest
from webapp.groups import schemas
from webapp.groups.service import Groups
from webapp.openapi import MetaAnswer

GROUPS = "/v1/groups"
GROUP = "/v1/groups/{group_id}"
ADMINS = "/v1/groups/{group_id}/admins"
PARTICIPANTS = "/v1/groups/{group_id}/participants"
ICON = "/v1/groups/{group_id}/icon"
INVITE = "/v1/groups/{group_id}/invite"
LEAVE = "/v1/groups/{group_id}/leave"


def routes(groups: Groups, authenticator: Authenticator, *, max_body: int) -> APIRouter:
    router = APIRouter(tags=["groups"])

    @router.get(
        GROUPS,
        summary="The groups that the business is in",
        response_model=schemas.GroupsAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def list_groups(request: Request) -> Response:
        caller = await authenticator.caller(request)
        return answers.answer({"groups": await groups.list_groups(caller)})

    @router.post(
        GROUPS,
        summary="Make a group; people join by its invitation",
        status_code=201,
        response_model=schemas.GroupsAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Subject),
    )
    async def create_group(request: Request) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.Subject, limit=max_body)
        made = await groups.create(caller, body.subject, request.state.request_id)
        return answers.answer({"groups": made}, status=201)

    @router.get(
        GROUP,
        summary="What a group is called, and who is in it",
        response_model=schemas.DescriptionAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_group(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        return answers.answer({"groups": [await groups.describe(caller, group_id)]})

    @router.put(
        GROUP,
        summary="Change a group's subject",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Subject),
    )
    async def change_group(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.Subject, limit=max_body)
        await groups.set_subject(caller, group_id, body.subject, request.state.request_id)
        return answers.answer({})

    @router.patch(
        ADMINS,
        summary="Make participants admins",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Participants),
    )
    async def promote(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.Participants, limit=max_body)
        await groups.promote(caller, group_id, body.wa_ids, request.state.request_id)
        return answers.answer({})

    @router.delete(
        ADMINS,
        summary="Make admins participants like others",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Participants),
    )
    async def demote(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.Participants, limit=max_body)
        await groups.demote(caller, group_id, body.wa_ids, request.state.request_id)
        return answers.answer({})

    @router.delete(
        PARTICIPANTS,
        summary="Put participants out of a group",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER, schemas.Participants),
    )
    async def remove(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        body = await bodies.read(request, schemas.Participants, limit=max_body)
        await groups.remove(caller, group_id, body.wa_ids, request.state.request_id)
        return answers.answer({})

    @router.get(
        ICON,
        summary="A group's icon, or with format=link its address",
        response_model=schemas.LinkAnswer,
        responses={200: {"content": pictures.CONTENT}},
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_icon(request: Request, group_id: str, format: openapi.OnlyLink = None) -> Response:
        caller = await authenticator.caller(request)
        if format not in (None, "link"):
            raise InvalidRequest.because(PARAMETER_INVALID, "format: should be link, or absent")
        kind, content = await groups.icon(caller, group_id)
        if format is None:
            return Response(content, media_type=kind)
        link = str(request.url.replace(path=ICON.format(group_id=group_id), query="", fragment=""))
        return answers.answer({"groups": [{"link": link}]})

    @router.post(
        ICON,
        summary="Set a group's icon",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER) | {"requestBody": pictures.UPLOAD},
    )
    async def set_icon(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        picture = await pictures.receive(request, schemas.MAX_ICON)
        await groups.set_icon(caller, group_id, picture.content, request.state.request_id)
        return answers.answer({})

    @router.delete(
        ICON,
        summary="Delete a group's icon",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def delete_icon(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        await groups.delete_icon(caller, group_id, request.state.request_id)
        return answers.answer({})

    @router.get(
        INVITE,
        summary="The link by which anybody may join a group",
        response_model=schemas.LinkAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def get_invite(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        return answers.answer({"groups": [{"link": await groups.invite(caller, group_id)}]})

    @router.delete(
        INVITE,
        summary="Make the link void; the next one is another",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def revoke_invite(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        await groups.revoke_invite(caller, group_id, request.state.request_id)
        return answers.answer({})

    @router.post(
        LEAVE,
        summary="Leave a group",
        response_model=MetaAnswer,
        openapi_extra=openapi.operation(openapi.BEARER),
    )
    async def leave(request: Request, group_id: str) -> Response:
        caller = await authenticator.caller(request)
        await groups.leave(caller, group_id, request.state.request_id)
        return answers.answer({})

    return router
