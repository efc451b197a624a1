"""End-to-end encryption as Signal specifies it, without I/O: bytes and state in, bytes and state out.

own = IdentityKeyPair.generate()
record = SessionRecord.initiate(own, registration_id, bundle)
kind, body = record.encrypt(plaintext)                # store record.sending_half() before body leaves

message = PreKeySignalMessage.parse(body)             # a first message, kind PREKEY
if existing is None or existing.needs_setup(message):
    existing = SessionRecord.respond(existing, own, message, signed_prekey, prekey, kyber_prekey)
plaintext = existing.decrypt(kind, body)              # store both halves, delete the one-time pre-key

record = SenderKeyRecord.create()                     # a group: encrypt once, for all its members
distribution = record.distribution()                  # to each member, inside a pairwise session
body = record.encrypt(plaintext)                      # store record.to_bytes() before body leaves

message = GroupMessage.parse(body)                    # find the sender's record by message.distribution_id
plaintext = record.decrypt(body)                      # after record.process(distribution)

blob, digest = attachments.encrypt(key, plaintext)    # key = attachments.generate_key(); in chunks: Encryptor
"""

from tidings.e2ee import attachments
from tidings.e2ee.errors import (
    CorruptState,
    DuplicateMessage,
    E2EEError,
    InvalidKey,
    InvalidMessage,
    InvalidSignature,
    KnownBaseKey,
    NoSession,
    OverBudget,
    PostQuantumRequired,
    TooFarAhead,
    TooManySetUps,
    UnknownMasterKey,
    UnknownPreKey,
    UnknownSealingKey,
    UntrustedIdentity,
)
from tidings.e2ee.group_messages import DistributionMessage, GroupMessage
from tidings.e2ee.messages import MESSAGE, PREKEY, VERSION_4, PreKeySignalMessage, SignalMessage
from tidings.e2ee.prekeys import (
    MAX_KEY_ID,
    KyberPreKey,
    PreKey,
    PreKeyBundle,
    SignedPreKey,
    check_downgrade,
    free_key_ids,
)
from tidings.e2ee.record import SessionRecord
from tidings.e2ee.sealing import Keyring, Sealer, generate_data_key, wrap_data_key
from tidings.e2ee.sender_keys import SenderKeyRecord
from tidings.e2ee.work import SETUP_STEPS, Spend, unlimited
from tidings.e2ee.xeddsa import IdentityKeyPair

__all__ = [
    "MAX_KEY_ID",
    "MESSAGE",
    "PREKEY",
    "SETUP_STEPS",
    "VERSION_4",
    "CorruptState",
    "DistributionMessage",
    "DuplicateMessage",
    "E2EEError",
    "GroupMessage",
    "IdentityKeyPair",
    "InvalidKey",
    "InvalidMessage",
    "InvalidSignature",
    "Keyring",
    "KnownBaseKey",
    "KyberPreKey",
    "NoSession",
    "OverBudget",
    "PostQuantumRequired",
    "PreKey",
    "PreKeyBundle",
    "PreKeySignalMessage",
    "Sealer",
    "SenderKeyRecord",
    "SessionRecord",
    "SignalMessage",
    "SignedPreKey",
    "Spend",
    "TooFarAhead",
    "TooManySetUps",
    "UnknownMasterKey",
    "UnknownPreKey",
    "UnknownSealingKey",
    "UntrustedIdentity",
    "attachments",
    "check_downgrade",
    "free_key_ids",
    "generate_data_key",
    "unlimited",
    "wrap_data_key",
]
