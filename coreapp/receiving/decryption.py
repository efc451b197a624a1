"""Reading what a recipient wrote to the business alone, in the session with them or in one that it opens."""

from __future__ import annotations

from coreapp.account.device import OwnDevice
from coreapp.peers.sessions import SessionStore
from coreapp.receiving.consequences import Consequences
from coreapp.receiving.key_changes import KeyChanges
from tidings import e2ee
from tidings.wire import device as frames
from tidings.wire.device import Deliver


class Decryption:
    """Decrypts for one account. The senders' sessions must be pinned and loaded."""

    def __init__(self, device: OwnDevice, store: SessionStore, key_changes: KeyChanges) -> None:
        self._device = device
        self._store = store
        self._key_changes = key_changes

    def decrypt(self, delivery: Deliver, consequences: Consequences) -> bytes:
        """The plaintext; the record that changed and the pre-key that was used go into `consequences`.

        Raises `e2ee.E2EEError`, and nothing has changed.
        """
        record = self._store.at_hand(delivery.sender)
        before = record.remote_identity if record is not None else None
        used: int | None = None
        kind = e2ee.MESSAGE
        if delivery.kind == frames.PREKEY:
            kind = e2ee.PREKEY
            first = e2ee.PreKeySignalMessage.parse(delivery.body)
            if record is None or record.needs_setup(first):
                record, used = self._respond(delivery.sender, record, first), first.prekey_id
        if record is None:
            raise e2ee.NoSession("a message without a session")
        plaintext = record.decrypt(kind, delivery.body)
        consequences.records[delivery.sender] = record
        self._store.keep(delivery.sender, record)
        if used is not None:
            consequences.used_prekeys.append(used)
        if delivery.kind == frames.PREKEY or consequences.security:
            self._key_changes.learn(
                delivery, record.remote_identity, consequences, before=before, kyber=record.version >= e2ee.VERSION_4
            )
        return plaintext

    def _respond(
        self, sender: str, record: e2ee.SessionRecord | None, first: e2ee.PreKeySignalMessage
    ) -> e2ee.SessionRecord:
        if self._key_changes.is_downgrade(sender, first):
            raise e2ee.PostQuantumRequired("the sender had post-quantum protection, and has left it out")
        signed = self._device.signed_prekeys.get(first.signed_prekey_id)
        if signed is None:
            raise e2ee.UnknownPreKey(f"signed pre-key {first.signed_prekey_id}")
        prekey = self._device.prekeys.get(first.prekey_id) if first.prekey_id is not None else None
        kyber_id = first.kyber_prekey_id
        kyber = self._device.kyber_prekeys.get(kyber_id) if kyber_id is not None else None
        try:
            return e2ee.SessionRecord.respond(
                record,
                self._device.identity,
                first,
                signed,
                prekey,
                kyber,
                allow_downgrade=self._key_changes.allow_downgrade,
            )
        except e2ee.UntrustedIdentity:
            # The recipient has registered anew: what they write is read, and the change is noted before it.
            return e2ee.SessionRecord.respond(None, self._device.identity, first, signed, prekey, kyber)
