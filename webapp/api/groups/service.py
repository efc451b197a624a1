"""Read and change groups through the Coreapp."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from tidings.wire import addresses, core
from tidings.wire.codes import NOT_FOUND, UNKNOWN_GROUP
from webapp.auth.tokens import Caller
from webapp.coreapps.interfaces import PrimaryCoreapps
from webapp.http.errors import InvalidRequest

log = logging.getLogger(__name__)


class GroupService:
    """Groups of the caller's account. All methods raise `InvalidRequest` and the errors of the Coreapp link."""

    def __init__(self, coreapps: PrimaryCoreapps) -> None:
        self._coreapps = coreapps

    async def create(self, caller: Caller, subject: str, request_id: str) -> list[dict[str, Any]]:
        found = await self._coreapps.of(caller.account).call_primary(
            lambda n: core.CreateGroup(n=n, account=caller.account, subject=subject, request_id=request_id),
            core.GroupList,
        )
        log.info("group.created", extra={"username": caller.username, "group": found.groups[0].id})
        return _entries(found)

    async def list_groups(self, caller: Caller) -> list[dict[str, Any]]:
        return _entries(
            await self._coreapps.of(caller.account).call_primary_repeatable(
                lambda n: core.ListGroups(n=n, account=caller.account), core.GroupList
            )
        )

    async def describe(self, caller: Caller, group_id: str) -> dict[str, Any]:
        _check(group_id)
        found = await self._coreapps.of(caller.account).call_primary_repeatable(
            lambda n: core.GetGroup(n=n, account=caller.account, id=group_id), core.GroupDescription
        )
        return {
            "admins": found.admins,
            "creation_time": found.created_at,
            "creator": found.creator,
            "participants": found.participants,
            "subject": found.subject,
        }

    async def invite(self, caller: Caller, group_id: str) -> str:
        _check(group_id)
        found = await self._coreapps.of(caller.account).call_primary_repeatable(
            lambda n: core.GetGroupInvite(n=n, account=caller.account, id=group_id), core.GroupInvite
        )
        return found.link

    async def icon(self, caller: Caller, group_id: str) -> tuple[str, bytes]:
        """Return the content type and the content of the icon."""
        _check(group_id)
        found = await self._coreapps.of(caller.account).call_primary_repeatable(
            lambda n: core.GetGroupIcon(n=n, account=caller.account, id=group_id), core.GroupIcon
        )
        return found.kind, found.content

    async def set_subject(self, caller: Caller, group_id: str, subject: str, request_id: str) -> None:
        await self._change(caller, group_id, core.SET_SUBJECT, request_id, subject=subject)

    async def promote(self, caller: Caller, group_id: str, wa_ids: Sequence[str], request_id: str) -> None:
        await self._change(caller, group_id, core.PROMOTE, request_id, numbers=wa_ids)

    async def demote(self, caller: Caller, group_id: str, wa_ids: Sequence[str], request_id: str) -> None:
        await self._change(caller, group_id, core.DEMOTE, request_id, numbers=wa_ids)

    async def remove(self, caller: Caller, group_id: str, wa_ids: Sequence[str], request_id: str) -> None:
        await self._change(caller, group_id, core.REMOVE, request_id, numbers=wa_ids)

    async def revoke_invite(self, caller: Caller, group_id: str, request_id: str) -> None:
        await self._change(caller, group_id, core.REVOKE_INVITE, request_id)

    async def leave(self, caller: Caller, group_id: str, request_id: str) -> None:
        await self._change(caller, group_id, core.LEAVE, request_id)

    async def set_icon(self, caller: Caller, group_id: str, content: bytes, request_id: str) -> None:
        await self._change(caller, group_id, core.SET_ICON, request_id, icon=content)

    async def delete_icon(self, caller: Caller, group_id: str, request_id: str) -> None:
        await self._change(caller, group_id, core.DELETE_ICON, request_id)

    async def _change(
        self,
        caller: Caller,
        group_id: str,
        action: str,
        request_id: str,
        *,
        subject: str = "",
        numbers: Sequence[str] = (),
        icon: bytes = b"",
    ) -> None:
        _check(group_id)
        await self._coreapps.of(caller.account).call_primary(
            lambda n: core.ChangeGroup(
                n=n,
                account=caller.account,
                id=group_id,
                action=action,
                subject=subject,
                numbers=list(numbers),
                icon=icon,
                request_id=request_id,
            ),
            core.Done,
        )
        log.info("group.changed", extra={"username": caller.username, "group": group_id, "action": action})


def _check(group_id: str) -> None:
    if not addresses.is_group(group_id):
        raise InvalidRequest.because(NOT_FOUND, UNKNOWN_GROUP)


def _entries(found: core.GroupList) -> list[dict[str, Any]]:
    return [{"id": group.id, "creation_time": group.created_at} for group in found.groups]
