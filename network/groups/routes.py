"""The HTTP endpoints of groups."""

from __future__ import annotations

import dataclasses

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from network import http
from network.directory.logins import Logins
from network.errors import BadRequest, NotFound
from network.groups import schemas
from network.groups.chats import MAX_ICON, Chats
from tidings.wire import addresses, groups
from tidings.wire.groups import GroupMembers, GroupSubject, InviteCode


@dataclasses.dataclass(frozen=True, slots=True)
class Service:
    """What the endpoints call."""

    chats: Chats
    logins: Logins


def make_routes(service: Service) -> APIRouter:
    """All endpoints. `number` is the caller's own."""
    routes = APIRouter(prefix="/v1/groups/{number}")

    @routes.post("")
    async def create(request: Request, number: str) -> JSONResponse:
        await _authenticate(request, number)
        body = await http.read_body(request, GroupSubject)
        return JSONResponse(schemas.show(await service.chats.create(number, body.subject)), 201)

    @routes.get("")
    async def list_mine(request: Request, number: str) -> JSONResponse:
        await _authenticate(request, number)
        return JSONResponse({"groups": [schemas.show_chat(chat) for chat in await service.chats.list_of(number)]})

    @routes.post("/join")
    async def join(request: Request, number: str) -> JSONResponse:
        await _authenticate(request, number)
        body = await http.read_body(request, InviteCode)
        return JSONResponse(schemas.show(await service.chats.join(number, body.code)))

    @routes.get("/{group}")
    async def get(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        return JSONResponse(schemas.show(await service.chats.get(number, group)))

    @routes.put("/{group}")
    async def rename(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        body = await http.read_body(request, GroupSubject)
        return JSONResponse(schemas.show(await service.chats.set_subject(number, group, body.subject)))

    @routes.delete("/{group}")
    async def leave(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        await service.chats.leave(number, group)
        return JSONResponse({"id": group, "left": True})

    @routes.get("/{group}/invite")
    async def get_invite(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        return JSONResponse({"code": await service.chats.get_code(number, group)})

    @routes.delete("/{group}/invite")
    async def renew_invite(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        return JSONResponse({"code": await service.chats.renew_code(number, group)})

    @routes.delete("/{group}/participants")
    async def remove(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        body = await http.read_body(request, GroupMembers)
        return JSONResponse(schemas.show(await service.chats.remove(number, group, body.numbers)))

    @routes.put("/{group}/admins")
    async def promote(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        body = await http.read_body(request, GroupMembers)
        return JSONResponse(schemas.show(await service.chats.set_admins(number, group, body.numbers, admin=True)))

    @routes.delete("/{group}/admins")
    async def demote(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        body = await http.read_body(request, GroupMembers)
        return JSONResponse(schemas.show(await service.chats.set_admins(number, group, body.numbers, admin=False)))

    @routes.get("/{group}/icon")
    async def get_icon(request: Request, number: str, group: str) -> Response:
        await _authenticate(request, number, group)
        media_type, data = await service.chats.get_icon(number, group)
        return Response(data, media_type=media_type)

    @routes.put("/{group}/icon")
    async def set_icon(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        data = await http.read_bytes(request, limit=MAX_ICON)
        if not data:
            raise BadRequest("the body is empty; an icon is a JPEG or PNG picture")
        return JSONResponse(schemas.show(await service.chats.set_icon(number, group, data)))

    @routes.delete("/{group}/icon")
    async def remove_icon(request: Request, number: str, group: str) -> JSONResponse:
        await _authenticate(request, number, group)
        return JSONResponse(schemas.show(await service.chats.set_icon(number, group, b"")))

    async def _authenticate(request: Request, number: str, group: str = "") -> None:
        if not addresses.is_number(number):
            raise NotFound(f"{number!r} is no number: 7 to 15 digits")
        await http.require_device(request, service.logins, number)
        if group and not addresses.is_group(group):
            raise NotFound(f"there is no group {group!r}", reason=groups.NO_SUCH_GROUP)

    return routes
