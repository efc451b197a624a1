"""Rows of sessions as the journal writes them, with the own one-time pre-keys that these sessions used."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Protocol

from prometheus_client import Counter

from tidings.storage.business import accounts, sessions
from tidings.storage.database import Connection

log = logging.getLogger(__name__)

USED_TWICE = Counter(
    "tidings_prekeys_used_twice_total", "Sessions discarded because another one had used their one-time pre-key"
)


@dataclasses.dataclass(slots=True)
class UsedPreKey:
    """An own one-time pre-key that a peer's first message named."""

    peer: str
    key_id: int
    # set by the commit if another session had used the key; the session of this one is then not stored
    was_gone: bool = False
    # `ONE_TIME` or `KYBER_ONE_TIME`
    kind: str = accounts.ONE_TIME


class SessionChange(Protocol):
    """Fields of a change that concern sessions."""

    account: str
    dropped_sessions: Sequence[str]
    whole_sessions: Sequence[sessions.SealedSession]
    sending_halves: Sequence[sessions.SealedSendingHalf]
    used_prekeys: Sequence[UsedPreKey]


class SessionRows:
    """Sessions to store, in whole or only their sending halves, and sessions to delete before that.

    A one-time pre-key is deleted in the transaction that stores the session which used it. If two shards use one
    pre-key at the same time, the second one stores no session. Neither waits for more than the other's commit.
    """

    def __init__(self, changes: Sequence[SessionChange]) -> None:
        self._dropped: dict[str, list[str]] = {}
        self._whole: dict[tuple[str, str], sessions.SealedSession] = {}
        self._sending: dict[tuple[str, str], sessions.SealedSendingHalf] = {}
        self._used: dict[str, list[UsedPreKey]] = {}
        for change in changes:
            if change.used_prekeys:
                for used in change.used_prekeys:
                    # An earlier transaction that had the change may have failed.
                    used.was_gone = False
                self._used.setdefault(change.account, []).extend(change.used_prekeys)
            for peer in change.dropped_sessions:
                self._whole.pop((change.account, peer), None)
                self._sending.pop((change.account, peer), None)
                self._dropped.setdefault(change.account, []).append(peer)
            for session in change.whole_sessions:
                self._whole[session.account, session.peer] = session
                self._sending.pop((session.account, session.peer), None)
            for half in change.sending_halves:
                key = (half.account, half.peer)
                if key in self._whole:
                    self._whole[key] = dataclasses.replace(self._whole[key], sending=half.sending)
                else:
                    self._sending[key] = half

    def __bool__(self) -> bool:
        return bool(self._dropped or self._whole or self._sending or self._used)

    async def write(self, connection: Connection) -> None:
        # Transactions of other processes lock the rows of several accounts in the same order.
        for account in sorted(self._used):
            await self._use_up(connection, account, self._used[account])
        for account in sorted(self._dropped):
            await sessions.delete(connection, account, self._dropped[account])
        await sessions.save(connection, list(self._whole.values()))
        await sessions.save_sending(connection, list(self._sending.values()))

    async def _use_up(self, connection: Connection, account: str, used: Sequence[UsedPreKey]) -> None:
        gone = []
        for kind in (accounts.ONE_TIME, accounts.KYBER_ONE_TIME):
            named = [key for key in used if key.kind == kind]
            if not named:
                continue
            ids = [key.key_id for key in named]
            left = set(await accounts.take_one_time_prekeys(connection, account, ids, kind))
            for key in named:
                if key.key_id in left:
                    left.discard(key.key_id)
                else:
                    gone.append(key)
        if not gone:
            return
        rows = await sessions.list_sessions(connection, account, [key.peer for key in gone])
        stored = {row.peer: row for row in rows}
        for key in gone:
            own = self._whole.get((account, key.peer))
            if own is not None and stored.get(key.peer) == own:
                # An earlier attempt at this transaction was committed.
                continue
            key.was_gone = True
            USED_TWICE.inc()
            log.warning("prekey.used_twice", extra={"peer": key.peer, "key_id": key.key_id})
            self._whole.pop((account, key.peer), None)
            self._sending.pop((account, key.peer), None)
            self._dropped.setdefault(account, []).append(key.peer)
