"""Two people with devices, for the tests of end-to-end encryption."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidings import e2ee

VERSIONS = (3, 4)


@dataclass
class Party:
    """Device and the server's copy of its keys."""

    registration_id: int = 100
    identity: e2ee.IdentityKeyPair = field(default_factory=e2ee.IdentityKeyPair.generate)

    def __post_init__(self) -> None:
        self.signed = e2ee.SignedPreKey.generate(self.identity, key_id=1)
        self.one_time = e2ee.PreKey.generate(key_id=7)
        self.kyber = e2ee.KyberPreKey.generate(self.identity, key_id=3)

    def bundle(self, version: int = 4, *, one_time: bool = True) -> e2ee.PreKeyBundle:
        return e2ee.PreKeyBundle(
            registration_id=self.registration_id,
            identity_key=self.identity.public,
            signed_prekey_id=self.signed.key_id,
            signed_prekey=self.signed.public,
            signed_prekey_signature=self.signed.signature,
            prekey_id=self.one_time.key_id if one_time else None,
            prekey=self.one_time.public if one_time else None,
            kyber_prekey_id=self.kyber.key_id if version == 4 else None,
            kyber_prekey=self.kyber.public if version == 4 else None,
            kyber_prekey_signature=self.kyber.signature if version == 4 else None,
        )

    def initiate(self, other: Party, version: int = 4, **options: bool) -> e2ee.SessionRecord:
        return e2ee.SessionRecord.initiate(self.identity, self.registration_id, other.bundle(version), **options)

    def receive(self, existing: e2ee.SessionRecord | None, kind: int, body: bytes) -> tuple[e2ee.SessionRecord, bytes]:
        """Receive a message as a caller does: set up the session when needed, then decrypt."""
        if kind == e2ee.PREKEY:
            message = e2ee.PreKeySignalMessage.parse(body)
            if existing is None or existing.needs_setup(message):
                existing = self.respond(existing, message)
        assert existing is not None
        return existing, existing.decrypt(kind, body)

    def respond(
        self, existing: e2ee.SessionRecord | None, message: e2ee.PreKeySignalMessage, **options: bool
    ) -> e2ee.SessionRecord:
        one_time = self.one_time if message.prekey_id is not None else None
        kyber = self.kyber if message.kyber_prekey_id is not None else None
        return e2ee.SessionRecord.respond(existing, self.identity, message, self.signed, one_time, kyber, **options)


@dataclass
class Pair:
    """Alice and Bob with a settled session: each has read a message of the other."""

    alice: Party
    bob: Party
    alices: e2ee.SessionRecord
    bobs: e2ee.SessionRecord


def settled(version: int = 4) -> Pair:
    alice, bob = Party(101), Party(102)
    alices = alice.initiate(bob, version)
    bobs, _ = bob.receive(None, *alices.encrypt(b"hello"))
    alices.decrypt(*bobs.encrypt(b"hello yourself"))
    bobs.decrypt(*alices.encrypt(b"settled"))
    return Pair(alice, bob, alices, bobs)


def blobs(record: e2ee.SessionRecord) -> tuple[bytes, bytes]:
    """Return the record as storage holds it."""
    return record.sending_half(), record.receiving_half()


def reload(party: Party, record: e2ee.SessionRecord) -> e2ee.SessionRecord:
    """Store and load the record, as a crash and a restart do."""
    return e2ee.SessionRecord.load(party.identity, *blobs(record))
