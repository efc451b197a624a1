"""Decryption of messages to the business alone, in the session with the sender or in one that the message opens."""

from __future__ import annotations

import dataclasses
import functools

from coreapp.account.own_device import OwnDevice
from coreapp.journal.session_rows import UsedPreKey
from coreapp.peers.sessions import SessionStore
from coreapp.receiving.effects import BatchEffects
from coreapp.receiving.key_changes import KeyChanges
from coreapp.receiving.set_ups import SetUps
from coreapp.receiving.work_budget import WorkBudget
from tidings import e2ee
from tidings.client import sessions
from tidings.client.sessions import PreKeys
from tidings.storage.business import accounts
from tidings.wire.device import PREKEY, Deliver


@dataclasses.dataclass(eq=False, repr=False)
class Decryption:
    """Decrypts for one account. The senders' sessions must be pinned and loaded, and the set-ups loaded."""

    device: OwnDevice
    store: SessionStore
    key_changes: KeyChanges
    _: dataclasses.KW_ONLY
    set_ups: SetUps
    work_budget: WorkBudget

    def __post_init__(self) -> None:
        self._prekeys = PreKeys(self.device.signed_prekeys.get, self.device.prekeys.get, self.device.find_kyber)

    def decrypt(self, delivery: Deliver, effects: BatchEffects) -> bytes:
        """Return the plaintext. The changed record and the used pre-key are added to `effects`. Raises
        `e2ee.E2EEError` without changes.
        """
        before = self.store.in_memory(delivery.sender)
        if delivery.kind == PREKEY:
            record, plaintext = self._read_first(before, delivery, effects)
        else:
            record, plaintext = sessions.read(before, delivery.body, self.spend_of(delivery.sender))
        effects.records[delivery.sender] = record
        self.store.keep(delivery.sender, record)
        if delivery.kind == PREKEY or effects.security:
            identity = before.remote_identity if before is not None else None
            self.key_changes.learn(
                delivery, record.remote_identity, effects, before=identity, kyber=record.version >= e2ee.VERSION_4
            )
        return plaintext

    def spend_of(self, sender: str) -> e2ee.Spend:
        """Return the function to call before work that exceeds what nearly every message of this sender needs."""
        return functools.partial(self.work_budget.spend, sender)

    def _read_first(
        self, before: e2ee.SessionRecord | None, delivery: Deliver, effects: BatchEffects
    ) -> tuple[e2ee.SessionRecord, bytes]:
        first = e2ee.PreKeySignalMessage.parse(delivery.body)
        sets_up = sessions.needs_setup(before, first)
        if sets_up and self.key_changes.is_downgrade(delivery.sender, first):
            raise e2ee.PostQuantumRequired("the sender no longer uses post-quantum protection")
        record, plaintext = sessions.read_first(
            before,
            self.device.identity,
            first,
            delivery.body,
            self._prekeys,
            check=functools.partial(self.set_ups.check, delivery.sender),
            allow_downgrade=self.key_changes.identities.allow_pq_downgrade,
            spend=self.spend_of(delivery.sender),
        )
        if sets_up:
            effects.base_keys += self.set_ups.accept(delivery.sender, first)
            if first.prekey_id is not None:
                effects.used_prekeys.append(UsedPreKey(delivery.sender, first.prekey_id))
            if first.kyber_prekey_id in self.device.kyber_one_time:
                kind = accounts.KYBER_ONE_TIME
                effects.used_prekeys.append(UsedPreKey(delivery.sender, first.kyber_prekey_id, kind=kind))
        return record, plaintext
