"""Groups as one device makes, joins and changes them, over the network's HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidings.client.http import CALL_SECONDS, Answer, DeviceCredentials, NetworkApi, decode, segment
from tidings.wire.groups import DescribedGroup, GroupMembers, GroupSubject, InviteCode


class _Listed(msgspec.Struct, gc=False):
    groups: list[DescribedGroup]


class GroupApi:
    """Calls of one device. Every one raises `NetworkAway` and `NetworkRefusal`: `NoSuchGroup` and `NotAdmin` of them.

    A change that is made already changes nothing, so all but `create` may be repeated.
    """

    def __init__(self, network: NetworkApi, device: DeviceCredentials, *, seconds: float = CALL_SECONDS) -> None:
        """seconds: that the network has for an answer."""
        self._network = network
        self._device = device
        self._seconds = seconds

    async def create(self, subject: str) -> DescribedGroup:
        """A new group, with the device alone in it as its admin. Each call makes another one."""
        return await self._change("POST", body=GroupSubject(subject))

    async def list_mine(self) -> Sequence[DescribedGroup]:
        """Every group that the device is in, without its participants."""
        return decode((await self._call("GET")).content, _Listed).groups

    async def fetch(self, group: str) -> DescribedGroup:
        """One group, with its participants."""
        return await self._change("GET", group)

    async def join(self, code: str) -> DescribedGroup:
        """Join by a code; nothing changes for whoever is in the group already."""
        return await self._change("POST", "join", body=InviteCode(code))

    async def leave(self, group: str) -> None:
        """Be in it no longer."""
        await self._call("DELETE", group)

    async def set_subject(self, group: str, subject: str) -> DescribedGroup:
        """Rename; for admins."""
        return await self._change("PUT", group, body=GroupSubject(subject))

    async def promote(self, group: str, numbers: Sequence[str]) -> DescribedGroup:
        """Make participants admins; for admins."""
        return await self._change("PUT", group, "admins", body=GroupMembers(list(numbers)))

    async def demote(self, group: str, numbers: Sequence[str]) -> DescribedGroup:
        """Make admins participants like others; for admins."""
        return await self._change("DELETE", group, "admins", body=GroupMembers(list(numbers)))

    async def remove(self, group: str, numbers: Sequence[str]) -> DescribedGroup:
        """Remove others; for admins."""
        return await self._change("DELETE", group, "participants", body=GroupMembers(list(numbers)))

    async def invite(self, group: str) -> str:
        """The code that lets anybody join; for admins."""
        return decode((await self._call("GET", group, "invite")).content, InviteCode).code

    async def revoke_invite(self, group: str) -> str:
        """A new code; the one before lets nobody join any more; for admins."""
        return decode((await self._call("DELETE", group, "invite")).content, InviteCode).code

    async def icon(self, group: str) -> tuple[str, bytes]:
        """Content type and content of the group's picture."""
        answer = await self._call("GET", group, "icon")
        return answer.headers.get("content-type", "application/octet-stream"), answer.content

    async def set_icon(self, group: str, content: bytes) -> DescribedGroup:
        """JPEG or PNG, at most 64 KiB; for admins."""
        return await self._change("PUT", group, "icon", content=content)

    async def delete_icon(self, group: str) -> DescribedGroup:
        """No picture any more; for admins."""
        return await self._change("DELETE", group, "icon")

    async def _change(self, method: str, *parts: str, **body: Any) -> DescribedGroup:
        return decode((await self._call(method, *parts, **body)).content, DescribedGroup)

    async def _call(self, method: str, *parts: str, body: object = None, content: bytes | None = None) -> Answer:
        path = "/".join((f"/v1/groups/{self._device.number}", *map(segment, parts)))
        bearer = self._device.token
        return await self._network.call(method, path, body, bearer=bearer, content=content, seconds=self._seconds)
