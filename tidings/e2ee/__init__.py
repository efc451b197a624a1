"""End-to-end encryption by Signal's specifications, without I/O: bytes and state in, bytes and state out.

own = IdentityKeyPair.generate()
record = SessionRecord.initiate(own, registration_id, bundle)
kind, body = record.encrypt(plaintext)                # store record.sending_half() before body leaves

message = PreKeySignalMessage.parse(body)             # a first message, kind PREKEY
if existing is None or existing.needs_setup(message):
    existing = SessionRecord.respond(existing, own, message, signed_prekey, prekey, kyber_prekey)
plaintext = existing.decrypt(kind, body)              # store both halves, delete the one-time pre-key
"""

from tidings.e2ee.errors import (
    CorruptState,
    DuplicateMessage,
    E2EEError,
    InvalidKey,
    InvalidMessage,
    InvalidSignature,
    NoSession,
    PostQuantumRequired,
    TooFarAhead,
    UnknownPreKey,
    UnknownSealingKey,
    UntrustedIdentity,
)
from tidings.e2ee.identity import IdentityKeyPair
from tidings.e2ee.messages import MESSAGE, PREKEY, PreKeySignalMessage, SignalMessage
from tidings.e2ee.prekeys import KyberPreKey, PreKey, PreKeyBundle, SignedPreKey, check_downgrade
from tidings.e2ee.record import SessionRecord
from tidings.e2ee.sealing import Keyring, Sealer, generate_data_key, wrap_data_key

__all__ = [
    "MESSAGE",
    "PREKEY",
    "CorruptState",
    "DuplicateMessage",
    "E2EEError",
    "IdentityKeyPair",
    "InvalidKey",
    "InvalidMessage",
    "InvalidSignature",
    "Keyring",
    "KyberPreKey",
    "NoSession",
    "PostQuantumRequired",
    "PreKey",
    "PreKeyBundle",
    "PreKeySignalMessage",
    "Sealer",
    "SessionRecord",
    "SignalMessage",
    "SignedPreKey",
    "TooFarAhead",
    "UnknownPreKey",
    "UnknownSealingKey",
    "UntrustedIdentity",
    "check_downgrade",
    "generate_data_key",
    "wrap_data_key",
]
