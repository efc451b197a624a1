"""Handling of Webapps' requests about groups."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Iterator, Mapping, Sequence

from coreapp.context import ShardContext
from coreapp.errors import RequestRefused
from coreapp.groups.replica import GroupReplicas
from tidings.client.errors import NetworkRefusal, NetworkUnavailable
from tidings.client.groups import GroupApi
from tidings.storage.business.groups import StoredGroup
from tidings.wire import codes, core, groups
from tidings.wire.groups import DescribedGroup

log = logging.getLogger(__name__)

_REFUSALS: Mapping[str, tuple[int, str]] = {
    groups.NO_SUCH_GROUP: (codes.NOT_FOUND, codes.UNKNOWN_GROUP),
    groups.NOT_PARTICIPANT: (codes.NOT_GROUP_PARTICIPANT, "the business is not a participant of this group"),
    groups.NOT_ADMIN: (codes.NOT_GROUP_ADMIN, "the business is not an admin of this group"),
    groups.NO_ICON: (codes.NOT_FOUND, "the group has no icon"),
    "last_admin": (codes.PARAMETER_INVALID, "wa_ids: a group requires an admin"),
    "too_many": (codes.PARAMETER_INVALID, "the business has reached the limit of groups"),
    "too_large": (codes.PARAMETER_INVALID, "File: is too large for an icon"),
}


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class GroupRequests:
    """Handles the requests for one account. All methods raise `RequestRefused`. A change is in our replica when they
    return.
    """

    context: ShardContext
    api: GroupApi
    replicas: GroupReplicas

    def require_sendable(self, group_id: str) -> None:
        """Raise `RequestRefused` unless a message to this group may be accepted."""
        self._find(group_id)

    async def handle(self, request: core.GroupRequest) -> core.GroupResponse:
        """Carry out a request."""
        with _as_refusals():
            if isinstance(request, core.CreateGroup):
                group = await self.api.create(request.subject)
                await self.replicas.keep(group, 0)
                log.info("group.created", extra={"group": group.id, "request_id": request.request_id})
                return core.GroupList(request.n, [_entry(group)])
            if isinstance(request, core.ListGroups):
                return core.GroupList(request.n, [_entry(group) for group in self.replicas.list_groups()])
            if isinstance(request, core.GetGroup):
                return _describe(request.n, self._find(request.id))
            if isinstance(request, core.GetGroupInvite):
                self._find(request.id)
                # The invited person opens the link on their device.
                url = self.context.settings.invite_url.rstrip("/")
                return core.GroupInvite(request.n, f"{url}/{await self.api.invite(request.id)}")
            if isinstance(request, core.GetGroupIcon):
                self._find(request.id)
                kind, content = await self.api.icon(request.id)
                return core.GroupIcon(request.n, kind, content)
            await self._change(request)
            return core.Done(request.n)

    async def _change(self, request: core.ChangeGroup) -> None:
        group_id, numbers = request.id, request.numbers
        group = self._find(group_id)
        self._require_participants(group, numbers)
        api, since = self.api, self.replicas.version(group_id)
        changed: DescribedGroup | None = None
        if request.action == core.LEAVE:
            await api.leave(group_id)
            await self.replicas.refresh(group_id)
        elif request.action == core.REVOKE_INVITE:
            await api.revoke_invite(group_id)
        elif request.action == core.SET_SUBJECT:
            changed = await api.set_subject(group_id, request.subject)
        elif request.action == core.PROMOTE:
            changed = await api.promote(group_id, numbers)
        elif request.action == core.DEMOTE:
            changed = await api.demote(group_id, numbers)
        elif request.action == core.REMOVE:
            if self.context.account in numbers:
                raise RequestRefused(codes.BAD_USER, "wa_ids: the business leaves a group by POST …/leave")
            changed = await api.remove(group_id, numbers)
        elif request.action == core.SET_ICON:
            changed = await api.set_icon(group_id, request.icon)
        elif request.action == core.DELETE_ICON:
            if not group.has_icon:
                raise RequestRefused(*_REFUSALS[groups.NO_ICON])
            changed = await api.delete_icon(group_id)
        else:
            raise RequestRefused(codes.INTERNAL_ERROR, f"unknown action {request.action}")
        if changed is not None:
            await self.replicas.keep(changed, since)
        log.info(
            "group.change_requested",
            extra={"group": group_id, "action": request.action, "request_id": request.request_id},
        )

    def _find(self, group_id: str) -> StoredGroup:
        group = self.replicas.find(group_id)
        if group is None:
            raise RequestRefused(*_REFUSALS[groups.NO_SUCH_GROUP])
        if not group.is_member:
            raise RequestRefused(*_REFUSALS[groups.NOT_PARTICIPANT])
        return group

    def _require_participants(self, group: StoredGroup, numbers: Sequence[str]) -> None:
        present = {number for number, _ in group.participants}
        for index, number in enumerate(numbers):
            if number not in present:
                raise RequestRefused(
                    codes.PARAMETER_INVALID, f"wa_ids[{index}]: {number} is not a participant of the group"
                )


@contextlib.contextmanager
def _as_refusals() -> Iterator[None]:
    try:
        yield
    except NetworkUnavailable as error:
        log.warning("group.network_away", extra={"error": str(error)})
        raise RequestRefused(codes.INTERNAL_ERROR, "the network cannot be reached") from error
    except NetworkRefusal as error:
        known = _REFUSALS.get(error.reason)
        if known is None:
            detail = f"{error.reason}: {error.detail}" if error.detail else error.reason or str(error)
            known = (codes.PARAMETER_INVALID, f"the network refused: {detail}")
        raise RequestRefused(*known) from error


def _entry(group: StoredGroup | DescribedGroup) -> core.GroupEntry:
    return core.GroupEntry(group.id, group.created_at)


def _describe(n: int, group: StoredGroup) -> core.GroupDescription:
    return core.GroupDescription(
        n,
        group.id,
        group.subject,
        group.creator,
        group.created_at,
        [number for number, _ in group.participants],
        [number for number, is_admin in group.participants if is_admin],
    )
