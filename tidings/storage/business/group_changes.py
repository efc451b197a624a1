"""What one unit of work writes about groups, and how several of them become one write."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy.ext.asyncio import AsyncConnection

from tidings.storage.business import group_messages, groups, sender_keys
from tidings.storage.business.group_messages import Receipt, Unread
from tidings.storage.business.groups import Group
from tidings.storage.business.sender_keys import Holder, OwnKey, PeerKey


@dataclasses.dataclass(slots=True)
class GroupChanges:
    """All or nothing.

    cleared_holders:   groups whose own key is new: whoever had the old one has none; `holders` are written after that.
    dropped_peer_keys: (group, sender) of keys that are forgotten.
    read_messages:     ids of messages that are unread no longer.
    withdrawn:         by author, ids of messages that are unread no longer if they are that author's.
    """

    account: str
    groups: Sequence[Group] = ()
    own_keys: Sequence[OwnKey] = ()
    cleared_holders: Sequence[str] = ()
    holders: Sequence[Holder] = ()
    peer_keys: Sequence[PeerKey] = ()
    dropped_peer_keys: Sequence[tuple[str, str]] = ()
    receipts: Sequence[Receipt] = ()
    unread: Sequence[Unread] = ()
    read_messages: Sequence[str] = ()
    withdrawn: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "account")


async def execute(connection: AsyncConnection, changes: Iterable[GroupChanges]) -> None:
    """Write changes in their order; where one row is written twice, the later write stands."""
    merged = _Merged(changes)
    await groups.save(connection, list(merged.groups.values()))
    await sender_keys.save_own(connection, list(merged.own_keys.values()))
    for account, cleared in merged.cleared.items():
        await sender_keys.clear_holders(connection, account, sorted(cleared))
    await sender_keys.save_holders(connection, list(merged.holders.values()))
    for (account, group_id), senders in merged.dropped.items():
        await sender_keys.delete_peers(connection, account, group_id, sorted(senders))
    await sender_keys.save_peers(connection, list(merged.peer_keys.values()))
    await group_messages.save_receipts(connection, list(merged.receipts.values()))
    await group_messages.add_unread(connection, merged.unread)
    await group_messages.delete_unread(connection, merged.read)
    for author, ids in merged.withdrawn.items():
        await group_messages.delete_unread(connection, ids, author=author)


class _Merged:
    def __init__(self, changes: Iterable[GroupChanges]) -> None:
        self.groups: dict[tuple[str, str], Group] = {}
        self.own_keys: dict[tuple[str, str], OwnKey] = {}
        self.cleared: dict[str, set[str]] = {}
        self.holders: dict[tuple[str, str, str], Holder] = {}
        self.peer_keys: dict[tuple[str, str, str], PeerKey] = {}
        self.dropped: dict[tuple[str, str], set[str]] = {}
        self.receipts: dict[tuple[str, str], Receipt] = {}
        self.unread: list[Unread] = []
        self.read: list[str] = []
        self.withdrawn: dict[str, list[str]] = {}
        for change in changes:
            self._add(change)

    def _add(self, change: GroupChanges) -> None:
        account = change.account
        for group in change.groups:
            self.groups[account, group.id] = group
        for own in change.own_keys:
            self.own_keys[account, own.group_id] = own
        if change.cleared_holders:
            cleared = set(change.cleared_holders)
            self.cleared.setdefault(account, set()).update(cleared)
            self.holders = {key: row for key, row in self.holders.items() if key[0] != account or key[1] not in cleared}
        for holder in change.holders:
            self.holders[account, holder.group_id, holder.member] = holder
        for group_id, sender in change.dropped_peer_keys:
            self.peer_keys.pop((account, group_id, sender), None)
            self.dropped.setdefault((account, group_id), set()).add(sender)
        for peer in change.peer_keys:
            self.peer_keys[account, peer.group_id, peer.sender] = peer
        for receipt in change.receipts:
            known = self.receipts.get((receipt.message_id, receipt.member))
            if known is None or known.status < receipt.status:
                self.receipts[receipt.message_id, receipt.member] = receipt
        self.unread += change.unread
        self.read += change.read_messages
        for author, ids in change.withdrawn.items():
            self.withdrawn.setdefault(author, []).extend(ids)
