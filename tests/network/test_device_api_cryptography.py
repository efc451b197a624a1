"""docs/device-api.md gives correct test vectors for implementers."""

from __future__ import annotations

import base64
import json

import pytest

from tests.network.device_api_page import example_frames, section, values
from tidings import e2ee
from tidings.e2ee import chains, curve, kdf, kem, pq_ratchet, ratchet, session_setup


def test_session_test_vectors_are_correct(monkeypatch: pytest.MonkeyPatch) -> None:
    told = values("session")
    queue = [told[f"{name} private"] for name in ("business base", "business ratchet", "handset ratchet")]
    queue.append(bytes([7]) * 32)
    monkeypatch.setattr(curve.KeyPair, "generate", lambda: curve.KeyPair.from_private(queue.pop(0)))

    business = e2ee.IdentityKeyPair.from_private(told["business identity private"])
    handset = e2ee.IdentityKeyPair.from_private(told["handset identity private"])
    pairs = {
        name: curve.KeyPair.from_private(told[f"{name} private"])
        for name in ("business base", "business ratchet", "signed pre-key", "one-time pre-key", "handset ratchet")
    }
    pairs |= {"business identity": business, "handset identity": handset}
    for name, pair in pairs.items():
        assert pair.public == told[f"{name} public"], name
    signed_pair, one_time_pair = pairs["signed pre-key"], pairs["one-time pre-key"]
    signature = told["signed pre-key signature"]

    bundle = e2ee.PreKeyBundle(
        registration_id=4711,
        identity_key=handset.public,
        signed_prekey_id=1,
        signed_prekey=signed_pair.public,
        signed_prekey_signature=signature,
        prekey_id=2,
        prekey=one_time_pair.public,
    )
    sender = e2ee.SessionRecord.initiate(business, 12345, bundle)
    assert sender.encrypt(told["plaintext"]) == (e2ee.PREKEY, told["PreKeySignalMessage"])

    first = e2ee.PreKeySignalMessage.parse(told["PreKeySignalMessage"])
    assert first.message.authenticated + first.message.mac == told["SignalMessage"]
    signed = e2ee.SignedPreKey(1, signed_pair.public, signed_pair.private, signature)
    one_time = e2ee.PreKey(2, one_time_pair.public, one_time_pair.private)
    receiver = e2ee.SessionRecord.respond(None, handset, first, signed, one_time)
    assert receiver.decrypt(e2ee.PREKEY, told["PreKeySignalMessage"]) == told["plaintext"]
    assert receiver.encrypt(b'{"type":"null"}') == (e2ee.MESSAGE, told["null SignalMessage"])
    reply = b'{"type":"text","text":{"body":"Hello yourself"}}'
    assert receiver.encrypt(reply) == (e2ee.MESSAGE, told["reply SignalMessage"])
    assert sender.decrypt(e2ee.MESSAGE, told["reply SignalMessage"]) == reply

    keys_ = session_setup.respond(handset, first, signed_pair, one_time_pair, None)
    assert (keys_.root_key, keys_.chain_key) == (told["root key 0"], told["chain key of the signed pre-key"])
    base = pairs["business base"]
    assert business.agree(signed_pair.public) == told["DH1"]
    assert base.agree(handset.public) == told["DH2"]
    assert base.agree(signed_pair.public) == told["DH3"]
    assert base.agree(one_time_pair.public) == told["DH4"]
    step = ratchet.kdf_rk(told["root key 0"], pairs["business ratchet"].agree(signed_pair.public))
    assert step == (told["root key 1"], told["business chain key 0"])
    assert chains.step(step[1], 0) == (told["next chain key"], told["message seed"])
    message_keys = kdf.hkdf(bytes(32), told["message seed"], b"WhisperMessageKeys", 80)
    assert message_keys == told["AES key"] + told["MAC key"] + told["IV"]
    step = ratchet.kdf_rk(step[0], pairs["handset ratchet"].agree(pairs["business ratchet"].public))
    assert step == (told["root key 2"], told["handset chain key 0"])


def test_the_walkthrough_uses_the_test_vectors() -> None:
    told = values("session")
    bodies = [json.loads(body).get("body") for _, body in example_frames(section("A client in 12 steps"))]
    sent = {base64.b64decode(body) for body in bodies if body}
    assert sent == {told["PreKeySignalMessage"], told["null SignalMessage"], told["reply SignalMessage"]}


def test_post_quantum_ratchet_and_kyber_test_vectors_are_correct() -> None:
    told = values("symmetric ratchet and Kyber")
    initiator, responder = pq_ratchet.start(told["third key"])
    assert (initiator, responder) == (told["initiator chain key"], told["responder chain key"])
    following, salt = pq_ratchet.step(initiator, 1)
    assert (following, salt) == (told["next initiator chain key"], told["salt of index 1"])
    assert pq_ratchet.step(following, 2)[1] == told["salt of index 2"]
    for index in (1, 300):
        assert pq_ratchet.encode(index) == told[f"field 5 of index {index}"]
    ciphertext = told["ML-KEM ciphertext, 1568 bytes, all"] * 1568
    assert kem.round_3(told["ML-KEM secret"], ciphertext) == told["round 3 secret"]


def test_sender_key_test_vectors_are_correct() -> None:
    told = values("sender key")
    assert curve.KeyPair.from_private(told["signing private"]).public == told["signing public"]
    assert told["chain key"] in told["distribution message"]
    assert chains.step(told["chain key"], 0) == (told["next chain key"], told["message seed"])
    keys_ = kdf.hkdf(bytes(32), told["message seed"], b"WhisperGroup", 48)
    assert keys_ == told["IV"] + told["AES key"]
    record = e2ee.SenderKeyRecord(told["distribution id"])
    assert record.is_portable
    record.process(told["distribution message"])
    assert record.decrypt(told["group message"]) == told["plaintext"]
    assert e2ee.GroupMessage.parse(told["group message"]).chain_id == 12345678
    sent = {
        frame["body"]
        for frame in map(json.loads, (body for _, body in example_frames()))
        if frame.get("kind") == "group"
    }
    assert {base64.b64decode(body) for body in sent} == {told["group message"]}
