"""HTTP endpoints of groups."""

from __future__ import annotations

import dataclasses
import math

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from network import http
from network.directory.directory import Directory
from network.errors import BadRequest, NotFound, TooOften
from network.groups import schemas
from network.groups.chats import MAX_ICON, Chats
from network.groups.rules import GroupState
from tidings.wire import addresses, groups
from tidings.wire.groups import GroupMembers, GroupSubject, InviteCode


@dataclasses.dataclass(frozen=True, slots=True)
class GroupEndpoints:
    """Endpoints of groups; `number` in their paths is the caller's own."""

    chats: Chats
    directory: Directory

    def routes(self) -> APIRouter:
        """Return the router with all endpoints."""
        router = APIRouter(prefix="/v1/groups/{number}", dependencies=[Depends(self.authenticate)])
        for method, path, endpoint in (
            ("POST", "", self.create),
            ("GET", "", self.list_mine),
            ("POST", "/join", self.join),
            ("GET", "/{group}", self.get),
            ("PUT", "/{group}", self.rename),
            ("DELETE", "/{group}", self.leave),
            ("GET", "/{group}/invite", self.get_invite),
            ("DELETE", "/{group}/invite", self.renew_invite),
            ("DELETE", "/{group}/participants", self.remove),
            ("PUT", "/{group}/admins", self.promote),
            ("DELETE", "/{group}/admins", self.demote),
            ("GET", "/{group}/icon", self.get_icon),
            ("PUT", "/{group}/icon", self.set_icon),
            ("DELETE", "/{group}/icon", self.remove_icon),
        ):
            router.add_api_route(path, endpoint, methods=[method])
        return router

    async def authenticate(self, request: Request) -> None:
        """Require the token of the device of `number` and a valid `group`, before every endpoint. Changes are
        rate-limited.
        """
        number, group = request.path_params["number"], request.path_params.get("group")
        if not addresses.is_number(number):
            raise NotFound(f"{number!r} is not a number of 7 to 15 digits")
        await http.require_device(request, self.directory.logins, number)
        if request.method != "GET" and (wait := self.directory.rate_limits.take("group", number)):
            raise TooOften("too many changes of groups", retry_after=math.ceil(wait))
        if group and not addresses.is_group(group):
            raise NotFound(f"there is no group {group!r}", reason=groups.NO_SUCH_GROUP)

    async def create(self, request: Request, number: str) -> JSONResponse:
        body = await http.read_body(request, GroupSubject)
        return _describe(await self.chats.create(number, body.subject), 201)

    async def list_mine(self, number: str) -> JSONResponse:
        return JSONResponse({"groups": [schemas.show_chat(chat) for chat in await self.chats.list_of(number)]})

    async def join(self, request: Request, number: str) -> JSONResponse:
        body = await http.read_body(request, InviteCode)
        return _describe(await self.chats.join(number, body.code))

    async def get(self, number: str, group: str) -> JSONResponse:
        return _describe(await self.chats.get(number, group))

    async def rename(self, request: Request, number: str, group: str) -> JSONResponse:
        body = await http.read_body(request, GroupSubject)
        return _describe(await self.chats.set_subject(number, group, body.subject))

    async def leave(self, number: str, group: str) -> JSONResponse:
        await self.chats.leave(number, group)
        return JSONResponse({"id": group, "left": True})

    async def get_invite(self, number: str, group: str) -> JSONResponse:
        return JSONResponse({"code": await self.chats.get_code(number, group)})

    async def renew_invite(self, number: str, group: str) -> JSONResponse:
        return JSONResponse({"code": await self.chats.renew_code(number, group)})

    async def remove(self, request: Request, number: str, group: str) -> JSONResponse:
        body = await http.read_body(request, GroupMembers)
        return _describe(await self.chats.remove(number, group, body.numbers))

    async def promote(self, request: Request, number: str, group: str) -> JSONResponse:
        body = await http.read_body(request, GroupMembers)
        return _describe(await self.chats.set_admins(number, group, body.numbers, admin=True))

    async def demote(self, request: Request, number: str, group: str) -> JSONResponse:
        body = await http.read_body(request, GroupMembers)
        return _describe(await self.chats.set_admins(number, group, body.numbers, admin=False))

    async def get_icon(self, number: str, group: str) -> Response:
        media_type, data = await self.chats.get_icon(number, group)
        return Response(data, media_type=media_type)

    async def set_icon(self, request: Request, number: str, group: str) -> JSONResponse:
        data = await http.read_bytes(request, limit=MAX_ICON)
        if not data:
            raise BadRequest("the body is empty; an icon must be a JPEG or PNG picture")
        return _describe(await self.chats.set_icon(number, group, data))

    async def remove_icon(self, number: str, group: str) -> JSONResponse:
        return _describe(await self.chats.set_icon(number, group, b""))


def _describe(state: GroupState, status: int = 200) -> JSONResponse:
    return JSONResponse(schemas.show(state), status)
