"""The network's HTTP API of groups as a device uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from handset import errors
from handset.devices.device import Device
from tidings.wire.groups import DescribedGroup


class Caller(Protocol):
    """Whoever makes calls for a device. Raises `NetworkAway`, `Unauthorized`, `NoSuchGroup`, `NotAdmin`, `Rejected`."""

    async def call(self, method: str, path: str, device: Device, body: object = None) -> Any: ...


class GroupApi:
    """Every call raises what its caller raises, and `Rejected` for an answer that is no group."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def create(self, device: Device, subject: str) -> DescribedGroup:
        """A new group, with the device as its admin."""
        return _group(await self._call("POST", device, body={"subject": subject}))

    async def list_mine(self, device: Device) -> Sequence[DescribedGroup]:
        """The groups that the device is in, without their participants."""
        return [_group(entry) for entry in (await self._call("GET", device))["groups"]]

    async def get(self, device: Device, group: str) -> DescribedGroup:
        """One of them, with its participants."""
        return _group(await self._call("GET", device, f"/{group}"))

    async def join(self, device: Device, code: str) -> DescribedGroup:
        """Join by a code; nothing changes for whoever is in it already."""
        return _group(await self._call("POST", device, "/join", {"code": code}))

    async def leave(self, device: Device, group: str) -> None:
        """Be in it no more."""
        await self._call("DELETE", device, f"/{group}")

    async def get_code(self, device: Device, group: str) -> str:
        """What others join with; for admins."""
        return str((await self._call("GET", device, f"/{group}/invite"))["code"])

    async def remove(self, device: Device, group: str, numbers: Sequence[str]) -> DescribedGroup:
        """Remove others; for admins."""
        body = {"numbers": list(numbers)}
        return _group(await self._call("DELETE", device, f"/{group}/participants", body))

    async def _call(self, method: str, device: Device, path: str = "", body: object = None) -> Any:
        return await self._caller.call(method, f"/v1/groups/{device.number}{path}", device, body)


def _group(answer: Any) -> DescribedGroup:
    try:
        return msgspec.convert(answer, DescribedGroup)
    except msgspec.ValidationError as error:
        raise errors.Rejected(f"the network's answer is no group: {error}") from error
