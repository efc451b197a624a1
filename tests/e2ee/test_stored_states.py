"""Everything stored or sealed once stays readable, and so do recorded messages of the official libraries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2ee import groups
from tidings import e2ee
from tidings.e2ee import attachments, curve, kem, sender_keys

DATA = Path(__file__).parent.parent / "data" / "e2ee"


def files(pattern: str) -> list[Any]:
    return [pytest.param(json.loads(path.read_text()), id=path.stem) for path in sorted(DATA.glob(pattern))]


def unhex(fields: dict[str, str], *names: str) -> list[bytes]:
    return [bytes.fromhex(fields[name]) for name in names]


def load(fields: dict[str, str]) -> e2ee.SessionRecord:
    private, sending, receiving = unhex(fields, "identity_private", "sending", "receiving")
    return e2ee.SessionRecord.load(e2ee.IdentityKeyPair.from_private(private), sending, receiving)


def read_all(record: e2ee.SessionRecord, messages: list[dict[str, Any]]) -> None:
    for message in messages:
        assert record.decrypt(message["kind"], bytes.fromhex(message["body"])) == message["plaintext"].encode()


def test_every_session_version_has_a_stored_state() -> None:
    assert {path.stem for path in DATA.glob("session_*.json")} >= {"session_v3_state1", "session_v4_state1"}


@pytest.mark.parametrize("stored", files("session_v*_state*.json"))
def test_a_recorded_session_state_decrypts_its_messages(stored: dict[str, Any]) -> None:
    record = load(stored["receiver"])
    assert record.version == stored["version"]
    read_all(record, stored["messages"])


@pytest.mark.parametrize("stored", files("session_v*_state*.json"))
def test_a_recorded_unacknowledged_session_state_still_sends(stored: dict[str, Any]) -> None:
    alices = load(stored["unacknowledged"])
    kind, body = alices.encrypt(b"hello")
    assert kind == e2ee.PREKEY
    record = respond(stored["responder"], e2ee.PreKeySignalMessage.parse(body))
    assert record.decrypt(kind, body) == b"hello"


def respond(keys: dict[str, str], message: e2ee.PreKeySignalMessage) -> e2ee.SessionRecord:
    private, signed_private, one_time_private, seed = unhex(
        keys, "identity_private", "signed_prekey_private", "prekey_private", "kyber_prekey_seed"
    )
    signed, one_time = (curve.KeyPair.from_private(key) for key in (signed_private, one_time_private))
    one_time_key = kyber = None
    if message.prekey_id is not None:
        one_time_key = e2ee.PreKey(message.prekey_id, one_time.public, one_time.private)
    if message.kyber_prekey_id is not None:
        kyber = e2ee.KyberPreKey(message.kyber_prekey_id, b"", seed, b"")
    return e2ee.SessionRecord.respond(
        None,
        e2ee.IdentityKeyPair.from_private(private),
        message,
        e2ee.SignedPreKey(message.signed_prekey_id, signed.public, signed.private, b""),
        one_time_key,
        kyber,
    )


def test_a_recorded_sealed_blob_opens() -> None:
    stored = json.loads((DATA / "sealed_v1.json").read_text())
    master, wrapped = unhex(stored, "master_key", "wrapped_data_key_2")
    derived, under_wrapped = unhex(stored, "derived", "wrapped")
    context = tuple(stored["context"])
    plaintext = stored["plaintext"].encode()
    assert e2ee.Sealer(e2ee.Keyring.from_master(master, 1)).open(derived, context) == plaintext
    assert e2ee.Sealer(e2ee.Keyring.unwrap(master, {2: wrapped})).open(under_wrapped, context) == plaintext


@pytest.mark.parametrize("recorded", files("official_*_bundle.json"))
def test_a_bundle_of_an_official_library_verifies(recorded: dict[str, Any]) -> None:
    identity, signed, signature, one_time, kyber, kyber_signature = unhex(
        recorded,
        "identity_key",
        "signed_prekey",
        "signed_prekey_signature",
        "prekey",
        "kyber_prekey",
        "kyber_signature",
    )
    bundle = e2ee.PreKeyBundle(
        registration_id=1,
        identity_key=identity,
        signed_prekey_id=1,
        signed_prekey=signed,
        signed_prekey_signature=signature,
        prekey_id=1,
        prekey=one_time,
        kyber_prekey_id=1,
        kyber_prekey=kyber,
        kyber_prekey_signature=kyber_signature,
    )
    bundle.verify()
    kem.encapsulate(kyber)


@pytest.mark.parametrize("recorded", files("official_*_messages.json"))
def test_messages_of_an_official_library_are_read(recorded: dict[str, Any]) -> None:
    """First the messages of a session that the library set up, then more of that session from our state after a
    reply."""
    first = recorded["first"]
    record = respond(recorded["responder"], e2ee.PreKeySignalMessage.parse(bytes.fromhex(first[0]["body"])))
    read_all(record, first)
    after = load(recorded["after_an_answer"])
    assert after.version == recorded["version"]
    read_all(after, recorded["then"])


def read_group(record: e2ee.SenderKeyRecord, messages: list[dict[str, str]]) -> None:
    for message in messages:
        assert record.decrypt(bytes.fromhex(message["body"])) == message["plaintext"].encode()


def test_every_sender_key_record_version_has_a_stored_state() -> None:
    versions = range(1, sender_keys.RECORD_VERSION + 1)
    assert {path.stem for path in DATA.glob("sender_key_*.json")} >= {f"sender_key_state{n}" for n in versions}


@pytest.mark.parametrize("stored", files("sender_key_state*.json"))
def test_a_recorded_sender_key_record_decrypts_its_messages(stored: dict[str, Any]) -> None:
    read_group(e2ee.SenderKeyRecord.from_bytes(bytes.fromhex(stored["member"])), stored["messages"])


@pytest.mark.parametrize("stored", files("sender_key_state*.json"))
def test_a_recorded_sender_key_record_still_sends(stored: dict[str, Any]) -> None:
    sender = e2ee.SenderKeyRecord.from_bytes(bytes.fromhex(stored["sender"]))
    newcomer = groups.joined(sender)
    members = [e2ee.SenderKeyRecord.from_bytes(bytes.fromhex(stored["member"])), newcomer]
    body = sender.encrypt(b"hello")
    assert [member.decrypt(body) for member in members] == [b"hello", b"hello"]


def test_a_recorded_attachment_decrypts() -> None:
    stored = json.loads((DATA / "attachment.json").read_text())
    key, digest, blob = unhex(stored, "key", "digest", "blob")
    assert attachments.decrypt(key, digest, blob) == stored["plaintext"].encode()


@pytest.mark.parametrize("recorded", files("official_*_group.json"))
def test_group_messages_of_an_official_library_are_read(recorded: dict[str, Any]) -> None:
    """Out of order, and over a rotation. Our encoding of its distribution message is identical byte for byte."""
    distribution = bytes.fromhex(recorded["distribution"])
    message = e2ee.DistributionMessage.parse(distribution)
    assert message.encode() == distribution
    record = e2ee.SenderKeyRecord(message.distribution_id)
    record.process(distribution)
    read_group(record, recorded["messages"])
    record.process(bytes.fromhex(recorded["rotated"]["distribution"]))
    read_group(groups.reload(record), recorded["rotated"]["messages"])
