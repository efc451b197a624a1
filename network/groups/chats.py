"""Creation and changes of groups; notices of a change are stored in the same transaction."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hmac
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from prometheus_client import Counter

from network import errors
from network.context import NetworkContext
from network.groups import rules, schemas
from network.groups.rules import GroupOutcome, GroupState, Rule
from network.routing.reservations import Notice, Reservations
from tidings.aio import crashpoints
from tidings.storage.database import Connection
from tidings.storage.network import directory, groups
from tidings.storage.network.groups import Chat
from tidings.wire import device
from tidings.wire.groups import CREATED, ICON, JOINED, NO_ICON, NO_SUCH_GROUP, NO_SUCH_INVITE

Value = TypeVar("Value")

CHANGES = Counter("tidings_network_group_changes_total", "Changes of groups", ["change"])

MAX_ICON = 64 * 1024  # Bytes of an icon.
# Groups that an unregistering number leaves per transaction.
GROUPS_PER_TRANSACTION = 50
# Seconds that a call waits while the database is unreachable.
RETRY_SECONDS = 20
_CODE_BYTES = 16


@dataclasses.dataclass(frozen=True, slots=True)
class Chats:
    """Groups. A change locks its group, so a message to it is ordered entirely before or after the change."""

    context: NetworkContext
    # Two groups of one creator in the same second need different ids.
    _creating: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)

    async def create(self, number: str, subject: str) -> GroupState:
        """Create a group. Raises `BadRequest` when the number is in too many groups."""
        now = self.context.now()
        code = secrets.token_urlsafe(_CODE_BYTES)

        async def work(connection: Connection, reservations: Reservations) -> GroupState:
            await _require_registered(connection, number)
            if (made := await groups.find_id(connection, code)) is not None:
                return await _get(connection, made)
            await _require_room(connection, number)
            chat = Chat(await _choose_id(connection, number, now), number, subject, now, 1, code, "")
            await groups.add(connection, chat)
            outcome = rules.create(chat)
            await _apply(connection, reservations, GroupState(chat, ()), outcome)
            return outcome.state

        async with self._creating:
            state = await self._persist(work)
        CHANGES.labels(CREATED).inc()
        return state

    async def list_of(self, number: str) -> Sequence[Chat]:
        """Return the groups of a number."""
        return await self.context.database.query(
            lambda c: groups.list_of(c, number, limit=rules.MAX_GROUPS), retry_seconds=RETRY_SECONDS
        )

    async def get(self, number: str, id: str) -> GroupState:
        """Return a group. Raises `NotFound` and `Forbidden`."""
        state = await self.context.database.query(lambda c: _get(c, id), retry_seconds=RETRY_SECONDS)
        rules.require_participant(state, number)
        return state

    async def join(self, number: str, code: str) -> GroupState:
        """Join a group. Raises `NotFound` for an unknown code, `BadRequest` when group or number have no room."""

        async def work(connection: Connection, reservations: Reservations) -> GroupState:
            await _require_registered(connection, number)
            id_ = await groups.find_id(connection, code) if code.isascii() else None
            if id_ is None:
                raise _no_such_invite()
            before = await _get(connection, id_, lock=True)
            # The code may have been replaced before the group was locked. Removed members must not return by it.
            if not hmac.compare_digest(before.chat.code, code):
                raise _no_such_invite()
            if before.find(number) is None:
                await _require_room(connection, number)
            outcome = rules.join(before, number)
            await _apply(connection, reservations, before, outcome)
            return outcome.state

        state = await self._persist(work)
        CHANGES.labels(JOINED).inc()
        return state

    async def leave(self, number: str, id: str) -> None:
        """Leave a group. Raises `NotFound`."""
        await self._change(id, functools.partial(rules.leave, number=number))

    async def leave_page(self, number: str, token_hash: bytes) -> int:
        """Leave up to `GROUPS_PER_TRANSACTION` groups, and return their number. Returns 0 once the number has a device
        with another token.
        """

        async def work(connection: Connection, reservations: Reservations) -> int:
            device = (await directory.list_registrations(connection, [number], lock=True)).get(number)
            if device is None or not hmac.compare_digest(device.token_hash, token_hash):
                return 0
            return await self.leave_in(connection, reservations, number)

        return await self._persist(work)

    async def leave_in(self, connection: Connection, reservations: Reservations, number: str) -> int:
        """Leave up to `GROUPS_PER_TRANSACTION` groups in the caller's transaction; return their number."""
        ids = [chat.id for chat in await groups.list_of(connection, number, limit=GROUPS_PER_TRANSACTION)]
        chats = await groups.list_chats(connection, ids, lock=True)
        members = await groups.list_members(connection, ids)
        for id_, chat in chats.items():
            before = GroupState(chat, tuple(members[id_]))
            await _apply(connection, reservations, before, rules.leave(before, number))
        return len(ids)

    async def remove(self, by: str, id: str, numbers: Sequence[str]) -> GroupState:
        """Remove participants. Raises `NotFound`, `Forbidden`, `BadRequest`."""
        return await self._change(id, functools.partial(rules.remove, by=by, numbers=numbers))

    async def set_admins(self, by: str, id: str, numbers: Sequence[str], *, admin: bool) -> GroupState:
        """Promote or demote participants. Raises `NotFound`, `Forbidden`, `BadRequest`."""
        return await self._change(id, functools.partial(rules.set_admins, by=by, numbers=numbers, admin=admin))

    async def set_subject(self, by: str, id: str, subject: str) -> GroupState:
        """Set the subject. Raises `NotFound`, `Forbidden`."""
        return await self._change(id, functools.partial(rules.set_subject, by=by, subject=subject))

    async def get_code(self, by: str, id: str) -> str:
        """Return the invite code. Raises `NotFound`, `Forbidden`."""
        state = await self.get(by, id)
        rules.require_admin(state, by)
        return state.chat.code

    async def renew_code(self, by: str, id: str) -> str:
        """Replace the invite code and return the new one. Raises `NotFound`, `Forbidden`."""
        code = secrets.token_urlsafe(_CODE_BYTES)
        await self._change(id, functools.partial(rules.set_code, by=by, code=code))
        return code

    async def get_icon(self, number: str, id: str) -> tuple[str, bytes]:
        """Return the MIME type and the bytes of the icon. Raises `NotFound`, `Forbidden`."""

        async def work(connection: Connection) -> tuple[GroupState, bytes | None]:
            return await _get(connection, id), await groups.find_icon(connection, id)

        state, data = await self.context.database.query(work, retry_seconds=RETRY_SECONDS)
        rules.require_participant(state, number)
        if data is None:
            raise errors.NotFound("the group has no icon", reason=NO_ICON)
        return state.chat.icon_type, data

    async def set_icon(self, by: str, id: str, data: bytes) -> GroupState:
        """Set the icon, or remove it when `data` is empty. Raises `NotFound`, `Forbidden`, `BadRequest`."""
        icon_type = _icon_type(data)

        async def work(connection: Connection, reservations: Reservations) -> GroupState:
            before = await _get(connection, id, lock=True)
            same = (await groups.find_icon(connection, id) or b"") == data
            outcome = rules.set_icon(before, by, icon_type, same=same)
            if not same:
                await groups.set_icon(connection, id, icon_type, data)
            await _apply(connection, reservations, before, outcome)
            return outcome.state

        state = await self._persist(work)
        CHANGES.labels(ICON).inc()
        return state

    async def _change(self, id: str, rule: Rule) -> GroupState:
        async def work(connection: Connection, reservations: Reservations) -> GroupOutcome:
            before = await _get(connection, id, lock=True)
            outcome = rule(before)
            await _apply(connection, reservations, before, outcome)
            return outcome

        outcome = await self._persist(work)
        for announcement in outcome.announcements:
            CHANGES.labels(announcement.change).inc()
        return outcome.state

    async def _persist(self, work: Callable[[Connection, Reservations], Awaitable[Value]]) -> Value:
        """Run a change and store its notices in one transaction. A caller without a response may repeat its request."""
        with self.context.reservations() as reservations:
            result = await self.context.database.persist(lambda c: work(c, reservations), retry_seconds=RETRY_SECONDS)
            crashpoints.reach(crashpoints.AFTER_COMMIT_BEFORE_REPLY)
        return result


async def _require_registered(connection: Connection, number: str) -> None:
    """Require a registered number, and keep it registered until the end of the transaction.

    So every participant of a group is in the directory.
    """
    if not await directory.list_registrations(connection, [number], lock=True):
        raise errors.NotFound(f"+{number} is not registered")


async def _require_room(connection: Connection, number: str) -> None:
    if await groups.count_of(connection, number) >= rules.MAX_GROUPS:
        raise errors.BadRequest(f"a number can be in at most {rules.MAX_GROUPS} groups", reason="too_many")


async def _choose_id(connection: Connection, number: str, now: int) -> str:
    """Return an id of the creator and the current second, or the next second without a group.

    now: Unix milliseconds.
    """
    second = now // 1000
    while True:
        ids = [f"{number}-{second + step}" for step in range(100)]
        taken = await groups.list_taken_ids(connection, ids)
        for id_ in ids:
            if id_ not in taken:
                return id_
        second += len(ids)


async def _get(connection: Connection, id: str, *, lock: bool = False) -> GroupState:
    chat = (await groups.list_chats(connection, [id], lock=lock)).get(id)
    if chat is None:
        raise errors.NotFound(f"there is no group {id}", reason=NO_SUCH_GROUP)
    return GroupState(chat, tuple((await groups.list_members(connection, [id]))[id]))


async def _apply(connection: Connection, reservations: Reservations, before: GroupState, outcome: GroupOutcome) -> None:
    """Write the differences, and the notices about them."""
    after = outcome.state
    id_ = after.chat.id
    if after.chat.subject != before.chat.subject:
        await groups.set_subject(connection, id_, after.chat.subject)
    if after.chat.code != before.chat.code:
        await groups.set_code(connection, id_, after.chat.code)
    if after.chat.epoch != before.chat.epoch:
        await groups.set_epoch(connection, id_, after.chat.epoch)
    present = {member.number for member in after.members}
    if gone := [member.number for member in before.members if member.number not in present]:
        await groups.remove_members(connection, id_, gone)
    await groups.put_members(connection, id_, [m for m in after.members if m not in before.members])
    for announcement in outcome.announcements:
        body = schemas.notice(announcement, after)
        audience = [*(member.number for member in after.members), *announcement.gone]
        await reservations.store(
            connection,
            [Notice(device.GROUP_CHANGED, announcement.by, number, body=body, group=id_) for number in audience],
        )


def _icon_type(data: bytes) -> str:
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if not data:
        return ""
    raise errors.BadRequest("an icon must be a JPEG or PNG picture")


def _no_such_invite() -> errors.NotFound:
    return errors.NotFound("there is no group with this invite code", reason=NO_SUCH_INVITE)
