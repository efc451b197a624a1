"""Group operations of one device, over the network's HTTP API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidings.client.http import CALL_SECONDS, DeviceCredentials, NetworkApi, NetworkResponse, decode, segment
from tidings.wire.groups import DescribedGroup, GroupMembers, GroupSubject, InviteCode


class _Listed(msgspec.Struct, gc=False):
    groups: list[DescribedGroup]


class GroupApi:
    """Group calls of one device.

    Each raises `NetworkUnavailable` and `NetworkRefusal`, including `NoSuchGroup` and `NotAdmin`.

    All calls but `create` are idempotent.
    """

    def __init__(self, network: NetworkApi, device: DeviceCredentials, *, seconds: float = CALL_SECONDS) -> None:
        """seconds: time limit of each call"""
        self._network = network
        self._device = device
        self._seconds = seconds

    async def create(self, subject: str) -> DescribedGroup:
        """Create a group whose only participant and admin is the device. Each call creates another group."""
        return await self._change("POST", body=GroupSubject(subject))

    async def list_mine(self) -> Sequence[DescribedGroup]:
        """Return every group that the device is in, without the participants."""
        return decode((await self._call("GET")).content, _Listed).groups

    async def fetch(self, group: str) -> DescribedGroup:
        """Return one group, with its participants."""
        return await self._change("GET", group)

    async def join(self, code: str) -> DescribedGroup:
        """Join a group by an invitation code. Does nothing when the device is in the group."""
        return await self._change("POST", "join", body=InviteCode(code))

    async def leave(self, group: str) -> None:
        """Leave a group."""
        await self._call("DELETE", group)

    async def set_subject(self, group: str, subject: str) -> DescribedGroup:
        """Rename a group; for admins."""
        return await self._change("PUT", group, body=GroupSubject(subject))

    async def promote(self, group: str, numbers: Sequence[str]) -> DescribedGroup:
        """Make participants admins; for admins."""
        return await self._change("PUT", group, "admins", body=GroupMembers(list(numbers)))

    async def demote(self, group: str, numbers: Sequence[str]) -> DescribedGroup:
        """Make admins ordinary participants; for admins."""
        return await self._change("DELETE", group, "admins", body=GroupMembers(list(numbers)))

    async def remove(self, group: str, numbers: Sequence[str]) -> DescribedGroup:
        """Remove other participants; for admins."""
        return await self._change("DELETE", group, "participants", body=GroupMembers(list(numbers)))

    async def invite(self, group: str) -> str:
        """Return the code with which any device can join; for admins."""
        return decode((await self._call("GET", group, "invite")).content, InviteCode).code

    async def revoke_invite(self, group: str) -> str:
        """Replace the invitation code, and return the new one. The old code becomes invalid; for admins."""
        return decode((await self._call("DELETE", group, "invite")).content, InviteCode).code

    async def icon(self, group: str) -> tuple[str, bytes]:
        """Return the content type and the content of the group's icon."""
        response = await self._call("GET", group, "icon")
        return response.headers.get("content-type", "application/octet-stream"), response.content

    async def set_icon(self, group: str, content: bytes) -> DescribedGroup:
        """Set the icon, a JPEG or PNG of at most 64 KiB; for admins."""
        return await self._change("PUT", group, "icon", content=content)

    async def delete_icon(self, group: str) -> DescribedGroup:
        """Delete the icon; for admins."""
        return await self._change("DELETE", group, "icon")

    async def _change(self, method: str, *parts: str, **body: Any) -> DescribedGroup:
        return decode((await self._call(method, *parts, **body)).content, DescribedGroup)

    async def _call(
        self, method: str, *parts: str, body: object = None, content: bytes | None = None
    ) -> NetworkResponse:
        path = "/".join((f"/v1/groups/{self._device.number}", *map(segment, parts)))
        bearer = self._device.token
        return await self._network.call(method, path, body, bearer=bearer, content=content, seconds=self._seconds)
