"""The network's groups over its HTTP API, as one number sees them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from coreapp.errors import UpstreamAway, UpstreamRefused
from tidings.storage.business.groups import Group
from tidings.wire.decoding import UNREADABLE
from tidings.wire.groups import DescribedGroup

TIMEOUT = 10.0  # seconds for one call

Shape = TypeVar("Shape")


class _Listed(msgspec.Struct, gc=False):
    groups: list[DescribedGroup]


class _Error(msgspec.Struct, gc=False):
    reason: str
    detail: str = ""


class _Failure(msgspec.Struct, gc=False):
    error: _Error


class _Invite(msgspec.Struct, gc=False):
    code: str


class GroupServer:
    """Calls for one number. All raise `UpstreamAway` and `UpstreamRefused`, with the network's reason."""

    def __init__(self, http_url: str, number: str, token: str) -> None:
        """http_url: of the network, `http://127.0.0.1:9095`."""
        self._base = f"{http_url}/v1/groups/{number}"
        self._number = number
        self._headers = {"Authorization": f"Bearer {token}"}

    async def create(self, subject: str) -> Group:
        """A new group with the number alone in it. Not to be tried again blindly: each call makes a group."""
        return self._group(await self._call("POST", "", body={"subject": subject}))

    async def list_mine(self) -> Sequence[DescribedGroup]:
        """Every group that the number is in, without its participants."""
        return _decode(await self._call("GET", ""), _Listed).groups

    async def fetch(self, group_id: str) -> Group:
        """One group."""
        return self._group(await self._call("GET", _path(group_id)))

    async def set_subject(self, group_id: str, subject: str) -> Group:
        """Rename."""
        return self._group(await self._call("PUT", _path(group_id), body={"subject": subject}))

    async def leave(self, group_id: str) -> None:
        """Be a participant no longer."""
        await self._call("DELETE", _path(group_id))

    async def promote(self, group_id: str, numbers: Sequence[str]) -> Group:
        """Make participants admins."""
        return self._group(await self._call("PUT", _path(group_id, "admins"), body={"numbers": numbers}))

    async def demote(self, group_id: str, numbers: Sequence[str]) -> Group:
        """Make admins participants like others."""
        return self._group(await self._call("DELETE", _path(group_id, "admins"), body={"numbers": numbers}))

    async def remove(self, group_id: str, numbers: Sequence[str]) -> Group:
        """Put participants out."""
        return self._group(await self._call("DELETE", _path(group_id, "participants"), body={"numbers": numbers}))

    async def invite(self, group_id: str) -> str:
        """The code that lets anybody join."""
        return _decode(await self._call("GET", _path(group_id, "invite")), _Invite).code

    async def revoke_invite(self, group_id: str) -> str:
        """A new code; the one before lets nobody join any more."""
        return _decode(await self._call("DELETE", _path(group_id, "invite")), _Invite).code

    async def icon(self, group_id: str) -> tuple[str, bytes]:
        """Content type and content."""
        answer = await self._call("GET", _path(group_id, "icon"))
        return answer.headers.get("content-type", "application/octet-stream"), answer.content

    async def set_icon(self, group_id: str, content: bytes) -> Group:
        """JPEG or PNG, at most 64 KiB."""
        return self._group(await self._call("PUT", _path(group_id, "icon"), content=content))

    async def delete_icon(self, group_id: str) -> Group:
        """No icon any more."""
        return self._group(await self._call("DELETE", _path(group_id, "icon")))

    def _group(self, answer: httpx.Response) -> Group:
        found = _decode(answer, DescribedGroup)
        return Group(
            self._number,
            found.id,
            found.subject,
            found.creator,
            found.created_at,
            found.epoch,
            tuple((participant.number, participant.admin) for participant in found.participants),
            found.has_icon,
            any(participant.number == self._number for participant in found.participants),
        )

    async def _call(self, method: str, path: str, *, body: Any = None, content: bytes | None = None) -> httpx.Response:
        url = self._base + path
        headers = dict(self._headers)
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT, trust_env=False) as client:
                answer = await client.request(method, url, content=content, headers=headers)
        except httpx.TransportError as error:
            raise UpstreamAway(f"{url}: {error!r}") from error
        if answer.status_code >= 500 or answer.status_code == 429:
            raise UpstreamAway(f"{url}: HTTP {answer.status_code}")
        if not answer.is_success:
            try:
                refusal = msgspec.json.decode(answer.content, type=_Failure).error
            except UNREADABLE:
                refusal = _Error(f"HTTP {answer.status_code}")
            raise UpstreamRefused(refusal.reason, refusal.detail)
        return answer


def _path(group_id: str, *parts: str) -> str:
    return "/" + "/".join(quote(part, safe="") for part in (group_id, *parts))


def _decode(answer: httpx.Response, shape: type[Shape]) -> Shape:
    try:
        return msgspec.json.decode(answer.content, type=shape)
    except UNREADABLE as error:
        raise UpstreamAway(f"the network answers strangely: {error}") from error
