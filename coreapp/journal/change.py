"""A change: the rows of one unit of work, and the merging of many changes into one write per kind of row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

from coreapp.journal.callback_rows import CallbackRows, HistorySealer, Seal
from coreapp.journal.session_rows import SessionRows, UsedPreKey
from tidings.storage import merging
from tidings.storage.base_keys import BaseKey
from tidings.storage.business import (
    callbacks,
    cloud_limits,
    contacts,
    group_changes,
    idempotency,
    identities,
    job_errors,
    jobs,
    media,
    media_downloads,
    messages,
    quarantine,
    service_windows,
    sessions,
    standins,
    template_events,
    undecrypted,
    upstream_ids,
)
from tidings.storage.business.base_keys import BASE_KEYS
from tidings.storage.business.callback_history import Attempt, EndedAttempt
from tidings.storage.business.quarantine import Item, Suspect
from tidings.storage.database import Connection


class _Identities:
    """Found identities and their acknowledgements. An acknowledgement applies to identities found before it."""

    def __init__(self, changes: Sequence[Change]) -> None:
        # For each acknowledgement of all identities: the account, and of which peers.
        self._all: list[tuple[str, Callable[[str], bool]]] = []
        self._found: dict[tuple[str, str], identities.StoredIdentity] = {}
        self._acknowledged: dict[tuple[str, str], list[bytes]] = {}
        for change in changes:
            for identity in change.found_identities:
                self._found[identity.account, identity.peer] = identity
                self._acknowledged.pop((identity.account, identity.peer), None)
            for peer, digest in change.acknowledged_identities:
                self._acknowledged.setdefault((change.account, peer), []).append(digest)
            if change.acknowledges_all is not None:
                self._all.append((change.account, change.acknowledges_all))
                for key, identity in self._found.items():
                    if key[0] == change.account and change.acknowledges_all(key[1]):
                        self._found[key] = dataclasses.replace(identity, acknowledged=True)

    def __bool__(self) -> bool:
        return bool(self._all or self._found or self._acknowledged)

    async def write(self, connection: Connection) -> None:
        for account, is_meant in self._all:
            await identities.acknowledge_all(connection, account, of=is_meant)
        await identities.save(connection, list(self._found.values()))
        for (account, peer), digests in self._acknowledged.items():
            await identities.acknowledge(connection, account, [(peer, digest) for digest in digests])


class _StandIns:
    """Numbers that stand for users. One that is issued and moved in a batch is added for its last user, so that a
    repeated commit finds it.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        # By account and number.
        self._new: dict[str, dict[str, standins.StandIn]] = {}
        self._moved: dict[str, dict[str, standins.StandIn]] = {}
        for change in changes:
            for row in change.new_standins:
                self._new.setdefault(row.account, {})[row.number] = row
            for row in change.moved_standins:
                new = self._new.get(row.account, {})
                (new if row.number in new else self._moved.setdefault(row.account, {}))[row.number] = row

    def __bool__(self) -> bool:
        return bool(self._new or self._moved)

    async def write(self, connection: Connection) -> None:
        for account, rows in sorted(self._new.items()):
            await standins.add(connection, account, list(rows.values()))
        for account, rows in sorted(self._moved.items()):
            await standins.move(connection, account, list(rows.values()))


class _Statuses:
    """Statuses that messages have reached, and the codes of failures."""

    at: int | None = None  # time of the batch, Unix milliseconds; None to store no times; set by `merge`

    def __init__(self, changes: Sequence[Change]) -> None:
        self._reached: dict[str, messages.Status] = {}
        self._failures: dict[str, int] = {}
        for change in changes:
            for message_id, status in (change.statuses or {}).items():
                known = self._reached.get(message_id)
                self._reached[message_id] = status if known is None else max(known, status)
            if change.failed_messages:
                self._failures.update(change.failed_messages)

    def __bool__(self) -> bool:
        return bool(self._reached or self._failures)

    async def write(self, connection: Connection) -> None:
        await messages.advance(connection, self._reached, self.at)
        if self.at is not None:
            await messages.note_failures(connection, self._failures, self.at)


class _Encrypted:
    """Messages that were encrypted after their acceptance."""

    at: int | None = None  # time of the batch, as in `_Statuses`

    def __init__(self, changes: Sequence[Change]) -> None:
        self._ids = [message_id for change in changes for message_id in change.encrypted_messages]

    def __bool__(self) -> bool:
        return bool(self._ids) and self.at is not None

    async def write(self, connection: Connection) -> None:
        if self.at is not None:
            await messages.note_encrypted(connection, self._ids, self.at)


def _not_sealed(found: Sequence[callbacks.Callback]) -> Sequence[bytes]:
    raise RuntimeError("the change was not put into a journal")


@merging.change_class
class Change:
    """Rows of one unit of work, written all or nothing: a field for each kind of row, in the order of the writes."""

    account: str
    _: dataclasses.KW_ONLY
    new_messages: Sequence[messages.MessageRow] = merging.rows(messages.add)
    used_keys: Sequence[idempotency.UsedKey] = merging.rows(idempotency.save)
    # new jobs, or existing ones that have become `ENCRYPTED`
    enqueued_jobs: Sequence[jobs.Job] = merging.rows(jobs.enqueue, key=attrgetter("id"), about="jobs")
    finished_jobs: Sequence[str] = merging.rows(jobs.finish, about="jobs")
    # messages whose jobs have become `ENCRYPTED`
    encrypted_messages: Sequence[str] = merging.part_of(_Encrypted, about="jobs")
    # records of failed attempts at queued jobs; deleted with the jobs that leave the queue
    failures: job_errors.JobErrorChanges | None = merging.nested(job_errors.execute, about="jobs")
    # peers whose session is deleted
    dropped_sessions: Sequence[str] = merging.part_of(SessionRows, about="keys")
    whole_sessions: Sequence[sessions.SealedSession] = merging.part_of(SessionRows)
    sending_halves: Sequence[sessions.SealedSendingHalf] = merging.part_of(SessionRows)
    # own one-time pre-keys that were used
    used_prekeys: Sequence[UsedPreKey] = merging.part_of(SessionRows)
    # base keys of first messages that opened these sessions without a one-time pre-key
    new_base_keys: Sequence[BaseKey] = merging.rows(BASE_KEYS.add, about="keys")
    statuses: Mapping[str, messages.Status] | None = merging.part_of(_Statuses, None)
    # by message id: code of the failure
    failed_messages: Mapping[str, int] | None = merging.part_of(_Statuses, None)
    # by message id: the content kept for sending it again
    kept: Mapping[str, bytes] | None = merging.mapping(messages.keep)
    # by message id: the type, for messages whose type was not known before
    renamed: Mapping[str, str] | None = merging.mapping(messages.change_kinds)
    # messages that were requested again from their sender
    new_undecrypted: Sequence[undecrypted.UndecryptedMessage] = merging.rows(undecrypted.add)
    # ids of requested messages that arrived, or whose error was reported
    ended_undecrypted: Sequence[str] = merging.rows(undecrypted.delete)
    checked_contacts: Sequence[contacts.StoredContact] = merging.rows(
        contacts.save, key=attrgetter("account", "wa_id"), about="contacts"
    )
    # by recipient: time of their message, Unix milliseconds
    last_message_at: Mapping[str, int] | None = merging.mapping_by_account(
        service_windows.save_last_message_at, combine=max
    )
    unread_messages: Sequence[service_windows.UnreadMessage] = merging.rows(service_windows.add_unread)
    # by recipient: ids of their messages that are no longer unread
    read_messages: Mapping[str, Sequence[str]] | None = merging.mapping_by_account(
        service_windows.delete_unread, combine=merging.joined
    )
    # files that are already in their directory
    new_media: Sequence[media.MediaRow] = merging.rows(media.add_all)
    # files that were sent
    used_media: Sequence[media.MediaUse] = merging.rows(media.note_uses, key=attrgetter("id"))
    # messages whose file is to be fetched
    new_downloads: Sequence[media_downloads.Download] = merging.rows(media_downloads.enqueue)
    tried_downloads: Sequence[media_downloads.Download] = merging.rows(media_downloads.reschedule)
    finished_downloads: Sequence[str] = merging.rows(media_downloads.finish)
    # downloads that are not in memory and whose messages were revoked; their `found` fills callbacks
    withdrawn_downloads: Sequence[media_downloads.WithdrawnDownload] = merging.rows(media_downloads.withdraw)
    groups: group_changes.GroupChanges | None = merging.nested(group_changes.execute)
    # acknowledges the identities of all peers for which it returns true; None for no such acknowledgement
    acknowledges_all: Callable[[str], bool] | None = merging.part_of(_Identities, None, about="keys")
    found_identities: Sequence[identities.StoredIdentity] = merging.part_of(_Identities)
    # (peer, hash); void if the peer has another hash when it is written
    acknowledged_identities: Sequence[tuple[str, bytes]] = merging.part_of(_Identities)
    kyber_identities: Sequence[tuple[str, bytes]] = merging.rows_by_account(identities.note_kyber, about="keys")
    # the journal sets their `seq`, in the order of commits
    new_callbacks: Sequence[callbacks.Callback] = merging.part_of(CallbackRows)
    finished_callbacks: Sequence[int] = merging.part_of(CallbackRows)
    failed_callbacks: Sequence[callbacks.Callback] = merging.part_of(CallbackRows)
    dead_callbacks: Sequence[callbacks.Callback] = merging.part_of(CallbackRows)
    # finished callbacks for the history
    ended_callbacks: Sequence[EndedAttempt] = merging.part_of(CallbackRows)
    # attempts at failed and dead callbacks for the history
    attempts: Sequence[Attempt] = merging.part_of(CallbackRows)
    # ids of events of templates that have a callback, or that none is to report
    ended_template_events: Sequence[str] = merging.rows(template_events.delete)
    # limits of numbers that have callbacks, or that none is to report
    announced_limits: Sequence[cloud_limits.AnnouncedLimits] = merging.rows(
        cloud_limits.set_announced, key=attrgetter("account")
    )
    # ids of the real Cloud API beside our own
    new_upstream_ids: Sequence[upstream_ids.UpstreamId] = merging.rows(upstream_ids.add)
    # numbers that stand for senders of these messages
    new_standins: Sequence[standins.StandIn] = merging.part_of(_StandIns)
    # the same numbers for users who have got another id
    moved_standins: Sequence[standins.StandIn] = merging.part_of(_StandIns)
    # quarantined deliveries, which the network may delete
    set_aside: Sequence[Suspect] = merging.rows(quarantine.save)
    # items that are no longer suspected or quarantined
    cleared_suspects: Sequence[Item] = merging.rows(quarantine.delete)
    # returns the items whose handling made this change; they count an attempt if the database refuses it
    made_from: Callable[[], Sequence[Item]] = tuple
    # returns the stored form of the callbacks' bodies; set by the journal
    seal: Seal = staticmethod(_not_sealed)
    # seals texts of the account's history; None to keep none; set by the journal
    history: HistorySealer | None = None


_MERGER = merging.Merger(Change)


def merge(changes: Sequence[Change], *, at: int | None) -> merging.Merged:
    """Merge changes, which are given in their order.

    at: time of the batch, Unix milliseconds; None to store no times
    """
    batch = _MERGER.merge(changes)
    if at is not None:
        for part in (batch.part(_Statuses), batch.part(_Encrypted)):
            if part is not None:
                part.at = at
    return batch
