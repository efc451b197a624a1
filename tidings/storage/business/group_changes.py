"""Rows about groups that one unit of work writes, and the merging of several units into one write."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from operator import attrgetter

from tidings.storage import merging
from tidings.storage.business import cross_shard_messages, group_messages, groups, sender_keys
from tidings.storage.business.cross_shard_messages import CrossShardMessage
from tidings.storage.business.group_messages import GroupReceipt, UnreadGroupMessage
from tidings.storage.business.groups import StoredGroup
from tidings.storage.business.sender_keys import KeyHolder, OwnKey, PeerKey
from tidings.storage.database import Connection


class _Holders:
    """Holders of own sender keys, and groups whose holders are cleared before they are written."""

    def __init__(self, changes: Sequence[GroupChanges]) -> None:
        self._cleared: dict[str, set[str]] = {}
        self._saved: dict[tuple[str, str, str], KeyHolder] = {}
        for change in changes:
            if cleared := set(change.cleared_holders):
                self._cleared.setdefault(change.account, set()).update(cleared)
                self._saved = {
                    key: row
                    for key, row in self._saved.items()
                    if row.account != change.account or row.group_id not in cleared
                }
            for holder in change.holders:
                self._saved[holder.account, holder.group_id, holder.member] = holder

    def __bool__(self) -> bool:
        return bool(self._cleared or self._saved)

    async def write(self, connection: Connection) -> None:
        for account, cleared in self._cleared.items():
            await sender_keys.clear_holders(connection, account, sorted(cleared))
        await sender_keys.save_holders(connection, list(self._saved.values()))


class _PeerKeys:
    """Sender keys of other participants, and keys that are deleted before they are written."""

    def __init__(self, changes: Sequence[GroupChanges]) -> None:
        self._dropped: dict[tuple[str, str], set[str]] = {}
        self._saved: dict[tuple[str, str, str], PeerKey] = {}
        for change in changes:
            for group_id, sender in change.dropped_peer_keys:
                self._saved.pop((change.account, group_id, sender), None)
                self._dropped.setdefault((change.account, group_id), set()).add(sender)
            for key in change.peer_keys:
                self._saved[key.account, key.group_id, key.sender] = key

    def __bool__(self) -> bool:
        return bool(self._dropped or self._saved)

    async def write(self, connection: Connection) -> None:
        for (account, group_id), senders in self._dropped.items():
            await sender_keys.delete_peers(connection, account, group_id, sorted(senders))
        await sender_keys.save_peers(connection, list(self._saved.values()))


async def _withdraw(connection: Connection, ids_by_author: Mapping[str, Sequence[str]]) -> None:
    for author, ids in ids_by_author.items():
        await group_messages.delete_unread(connection, ids, author=author)


@merging.change_class
class GroupChanges:
    """Changes of one unit of work, all or nothing. It has a field per kind of row, in the order of the writes."""

    account: str
    _: dataclasses.KW_ONLY
    groups: Sequence[StoredGroup] = merging.rows(groups.save, key=attrgetter("account", "id"))
    own_keys: Sequence[OwnKey] = merging.rows(sender_keys.save_own, key=attrgetter("account", "group_id"))
    # Groups with a new own key, whose holders are all removed before `holders` are written.
    cleared_holders: Sequence[str] = merging.part_of(_Holders)
    holders: Sequence[KeyHolder] = merging.part_of(_Holders)
    # Deleted keys, (group, sender).
    dropped_peer_keys: Sequence[tuple[str, str]] = merging.part_of(_PeerKeys)
    peer_keys: Sequence[PeerKey] = merging.part_of(_PeerKeys)
    receipts: Sequence[GroupReceipt] = merging.rows(
        group_messages.save_receipts, key=attrgetter("message_id", "member"), rank=attrgetter("status")
    )
    unread: Sequence[UnreadGroupMessage] = merging.rows(group_messages.add_unread)
    # Ids of messages that are no longer unread.
    read_messages: Sequence[str] = merging.rows(group_messages.delete_unread)
    # Author -> ids of messages that are no longer unread, if they are that author's.
    withdrawn: Mapping[str, Sequence[str]] | None = merging.mapping(_withdraw, combine=merging.joined)
    # Cross-shard messages to other shards.
    notes: Sequence[CrossShardMessage] = merging.rows(cross_shard_messages.add)
    # Ids of cross-shard messages to this shard that have been handled.
    ended_notes: Sequence[str] = merging.rows(cross_shard_messages.delete)

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "account")


_MERGER = merging.Merger(GroupChanges)


async def execute(connection: Connection, changes: Sequence[GroupChanges]) -> None:
    """Write changes in their order. If a row is written twice, the later write wins."""
    await _MERGER.merge(changes).write(connection)
