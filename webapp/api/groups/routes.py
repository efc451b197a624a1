"""`/v1/groups` and the paths below it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response

from tidings.wire.codes import PARAMETER_INVALID
from webapp.api.groups import schemas
from webapp.api.groups.service import GroupService
from webapp.auth.authenticator import AnyCaller
from webapp.http import pictures, responses
from webapp.http.bodies import json_body
from webapp.http.dependencies import RequestId, part
from webapp.http.errors import InvalidRequest
from webapp.http.openapi import document
from webapp.http.openapi.document import RESPONSES, MetaResponse
from webapp.http.pictures import UploadedPicture, picture_body

GROUPS = "/v1/groups"
GROUP = "/v1/groups/{group_id}"
ADMINS = "/v1/groups/{group_id}/admins"
PARTICIPANTS = "/v1/groups/{group_id}/participants"
ICON = "/v1/groups/{group_id}/icon"
INVITE = "/v1/groups/{group_id}/invite"
LEAVE = "/v1/groups/{group_id}/leave"


router = APIRouter(tags=["groups"], responses=RESPONSES)
Service = Annotated[GroupService, part(GroupService)]


@router.get(GROUPS, summary="List the groups of the business", response_model=schemas.GroupsResponse)
async def list_groups(caller: AnyCaller, groups: Service) -> Response:
    return responses.success({"groups": await groups.list_groups(caller)})


@router.post(
    GROUPS,
    summary="Create a group; participants join by its invite link",
    status_code=201,
    response_model=schemas.GroupsResponse,
)
async def create_group(
    caller: AnyCaller,
    body: Annotated[schemas.Subject, json_body(schemas.Subject)],
    groups: Service,
    request_id: RequestId,
) -> Response:
    made = await groups.create(caller, body.subject, request_id)
    return responses.success({"groups": made}, status=201)


@router.get(GROUP, summary="Get a group's subject and participants", response_model=schemas.DescriptionResponse)
async def get_group(caller: AnyCaller, groups: Service, group_id: str) -> Response:
    return responses.success({"groups": [await groups.describe(caller, group_id)]})


@router.put(GROUP, summary="Change a group's subject", response_model=MetaResponse)
async def change_group(
    caller: AnyCaller,
    body: Annotated[schemas.Subject, json_body(schemas.Subject)],
    groups: Service,
    request_id: RequestId,
    group_id: str,
) -> Response:
    await groups.set_subject(caller, group_id, body.subject, request_id)
    return responses.success({})


@router.patch(ADMINS, summary="Make participants admins", response_model=MetaResponse)
async def promote(
    caller: AnyCaller,
    body: Annotated[schemas.Participants, json_body(schemas.Participants)],
    groups: Service,
    request_id: RequestId,
    group_id: str,
) -> Response:
    await groups.promote(caller, group_id, body.wa_ids, request_id)
    return responses.success({})


@router.delete(ADMINS, summary="Demote admins to participants", response_model=MetaResponse)
async def demote(
    caller: AnyCaller,
    body: Annotated[schemas.Participants, json_body(schemas.Participants)],
    groups: Service,
    request_id: RequestId,
    group_id: str,
) -> Response:
    await groups.demote(caller, group_id, body.wa_ids, request_id)
    return responses.success({})


@router.delete(PARTICIPANTS, summary="Remove participants from a group", response_model=MetaResponse)
async def remove(
    caller: AnyCaller,
    body: Annotated[schemas.Participants, json_body(schemas.Participants)],
    groups: Service,
    request_id: RequestId,
    group_id: str,
) -> Response:
    await groups.remove(caller, group_id, body.wa_ids, request_id)
    return responses.success({})


@router.get(
    ICON,
    summary="Get a group's icon, or its URL with format=link",
    response_model=schemas.LinkResponse,
    responses={200: {"content": pictures.CONTENT}},
)
async def get_icon(
    caller: AnyCaller, groups: Service, request: Request, group_id: str, format: document.OnlyLink = None
) -> Response:
    if format not in (None, "link"):
        raise InvalidRequest.because(PARAMETER_INVALID, "format: should be link, or absent")
    kind, content = await groups.icon(caller, group_id)
    if format is None:
        return Response(content, media_type=kind)
    link = str(request.url.replace(path=ICON.format(group_id=group_id), query="", fragment=""))
    return responses.success({"groups": [{"link": link}]})


@router.post(
    ICON, summary="Set a group's icon", response_model=MetaResponse, openapi_extra={"requestBody": pictures.UPLOAD}
)
async def set_icon(
    caller: AnyCaller,
    picture: Annotated[UploadedPicture, picture_body(schemas.MAX_ICON)],
    groups: Service,
    request_id: RequestId,
    group_id: str,
) -> Response:
    await groups.set_icon(caller, group_id, picture.content, request_id)
    return responses.success({})


@router.delete(ICON, summary="Delete a group's icon", response_model=MetaResponse)
async def delete_icon(caller: AnyCaller, groups: Service, request_id: RequestId, group_id: str) -> Response:
    await groups.delete_icon(caller, group_id, request_id)
    return responses.success({})


@router.get(INVITE, summary="Get a group's invite link", response_model=schemas.LinkResponse)
async def get_invite(caller: AnyCaller, groups: Service, group_id: str) -> Response:
    return responses.success({"groups": [{"link": await groups.invite(caller, group_id)}]})


@router.delete(INVITE, summary="Revoke a group's invite link", response_model=MetaResponse)
async def revoke_invite(caller: AnyCaller, groups: Service, request_id: RequestId, group_id: str) -> Response:
    await groups.revoke_invite(caller, group_id, request_id)
    return responses.success({})


@router.post(LEAVE, summary="Leave a group", response_model=MetaResponse)
async def leave(caller: AnyCaller, groups: Service, request_id: RequestId, group_id: str) -> Response:
    await groups.leave(caller, group_id, request_id)
    return responses.success({})
