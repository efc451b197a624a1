"""Answers to what Webapps ask about groups."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence

from coreapp.errors import Refused, UpstreamAway, UpstreamRefused
from coreapp.groups.api import GroupServer
from coreapp.groups.replica import GroupReplicas
from tidings.storage.business.groups import Group
from tidings.wire import codes, core, groups

log = logging.getLogger(__name__)

_REFUSALS: Mapping[str, tuple[int, str]] = {
    groups.NO_SUCH_GROUP: (codes.NOT_FOUND, codes.UNKNOWN_GROUP),
    groups.NOT_PARTICIPANT: (codes.NOT_GROUP_PARTICIPANT, "the business is not a participant of this group"),
    groups.NOT_ADMIN: (codes.NOT_GROUP_ADMIN, "the business is not an admin of this group"),
    groups.NO_ICON: (codes.NOT_FOUND, "the group has no icon"),
    "last_admin": (codes.PARAMETER_INVALID, "wa_ids: a group needs an admin"),
    "too_many": (codes.PARAMETER_INVALID, "the business is in as many groups as it may be"),
    "too_large": (codes.PARAMETER_INVALID, "File: is too large for an icon"),
}


class GroupRequests:
    """Answers for one account. All raise `Refused`. What was done is in our copy when they return."""

    def __init__(self, servers: GroupServer, book: GroupReplicas, *, account: str, invite_url: str) -> None:
        """invite_url: what stands before the code in an invitation; who is invited gives the link to their device."""
        self._servers = servers
        self._book = book
        self._account = account
        self._invite_url = invite_url.rstrip("/")

    def require_sendable(self, group_id: str) -> None:
        """May a message to this group be accepted?"""
        self._find(group_id)

    async def answer(self, question: core.GroupQuestion) -> core.GroupAnswer:
        """Do what is asked."""
        with _as_refusals():
            if isinstance(question, core.CreateGroup):
                group = await self._servers.create(question.subject)
                await self._book.keep(group, 0)
                log.info("group.created", extra={"group": group.id, "request_id": question.request_id})
                return core.GroupList(question.n, [_entry(group)])
            if isinstance(question, core.ListGroups):
                return core.GroupList(question.n, [_entry(group) for group in self._book.list_groups()])
            if isinstance(question, core.GetGroup):
                return _describe(question.n, self._find(question.id))
            if isinstance(question, core.GetGroupInvite):
                self._find(question.id)
                return core.GroupInvite(question.n, f"{self._invite_url}/{await self._servers.invite(question.id)}")
            if isinstance(question, core.GetGroupIcon):
                self._find(question.id)
                kind, content = await self._servers.icon(question.id)
                return core.GroupIcon(question.n, kind, content)
            await self._change(question)
            return core.Done(question.n)

    async def _change(self, question: core.ChangeGroup) -> None:
        group_id, numbers = question.id, question.numbers
        group = self._find(group_id)
        self._require_participants(group, numbers)
        servers, since = self._servers, self._book.version(group_id)
        changed: Group | None = None
        if question.action == core.LEAVE:
            await servers.leave(group_id)
            await self._book.refresh(group_id)
        elif question.action == core.REVOKE_INVITE:
            await servers.revoke_invite(group_id)
        elif question.action == core.SET_SUBJECT:
            changed = await servers.set_subject(group_id, question.subject)
        elif question.action == core.PROMOTE:
            changed = await servers.promote(group_id, numbers)
        elif question.action == core.DEMOTE:
            changed = await servers.demote(group_id, numbers)
        elif question.action == core.REMOVE:
            if self._account in numbers:
                raise Refused(codes.BAD_USER, "wa_ids: the business leaves a group by POST …/leave")
            changed = await servers.remove(group_id, numbers)
        elif question.action == core.SET_ICON:
            changed = await servers.set_icon(group_id, question.icon)
        elif question.action == core.DELETE_ICON:
            if not group.has_icon:
                raise Refused(*_REFUSALS[groups.NO_ICON])
            changed = await servers.delete_icon(group_id)
        else:
            raise Refused(codes.INTERNAL_ERROR, f"unknown action {question.action}")
        if changed is not None:
            await self._book.keep(changed, since)
        log.info(
            "group.asked_to_change",
            extra={"group": group_id, "action": question.action, "request_id": question.request_id},
        )

    def _find(self, group_id: str) -> Group:
        group = self._book.find(group_id)
        if group is None:
            raise Refused(*_REFUSALS[groups.NO_SUCH_GROUP])
        if not group.is_member:
            raise Refused(*_REFUSALS[groups.NOT_PARTICIPANT])
        return group

    def _require_participants(self, group: Group, numbers: Sequence[str]) -> None:
        present = {number for number, _ in group.participants}
        for index, number in enumerate(numbers):
            if number not in present:
                raise Refused(codes.PARAMETER_INVALID, f"wa_ids[{index}]: {number} is not a participant of the group")


@contextlib.contextmanager
def _as_refusals() -> Iterator[None]:
    try:
        yield
    except UpstreamAway as error:
        log.warning("group.network_away", extra={"error": str(error)})
        raise Refused(codes.INTERNAL_ERROR, "the network cannot be reached") from error
    except UpstreamRefused as error:
        known = _REFUSALS.get(error.reason)
        if known is None:
            known = (codes.PARAMETER_INVALID, f"the network refused: {error}")
        raise Refused(*known) from error


def _entry(group: Group) -> core.GroupEntry:
    return core.GroupEntry(group.id, group.created_at)


def _describe(n: int, group: Group) -> core.GroupDescription:
    return core.GroupDescription(
        n,
        group.id,
        group.subject,
        group.creator,
        group.created_at,
        [number for number, _ in group.participants],
        [number for number, is_admin in group.participants if is_admin],
    )
