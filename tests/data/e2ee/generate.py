"""Writer of the stored states that this code must always be able to read.

Run it once for a new `state.STATE_VERSION` or `sender_keys.RECORD_VERSION`, from the top of the repository: `python -m
tests.data.e2ee.generate`. Existing files are never overwritten.
"""

import json
from pathlib import Path
from typing import Any

from tests.e2ee import groups, parties
from tidings import e2ee
from tidings.e2ee import attachments, sender_keys, state

HERE = Path(__file__).parent


def make(version: int) -> dict[str, Any]:
    """Return Bob's record with stored keys and an archived session, Alice's without a reply, and messages to Bob."""
    pair = parties.settled(version)
    for _ in range(2):
        skipped = pair.alices.encrypt(b"a message that was overtaken")
        pair.bobs.decrypt(*pair.alices.encrypt(b"overtaking"))
        pair.alices.decrypt(*pair.bobs.encrypt(b"turn"))
    archived = pair.alices
    renewed = pair.alice.initiate(pair.bob, version)
    unacknowledged = parties.blobs(renewed)
    pair.bobs, _ = pair.bob.receive(pair.bobs, *renewed.encrypt(b"anew"))
    overtaken = renewed.encrypt(b"overtaken in the new session")
    pair.bobs.decrypt(*renewed.encrypt(b"overtaking"))
    sending, receiving = parties.blobs(pair.bobs)
    messages = [
        (*overtaken, b"overtaken in the new session"),
        (*renewed.encrypt(b"the next message"), b"the next message"),
        (*skipped, b"a message that was overtaken"),
        (*archived.encrypt(b"from the archived session"), b"from the archived session"),
    ]
    return {
        "version": version,
        "state_version": state.STATE_VERSION,
        "receiver": {
            "identity_private": pair.bob.identity.private.hex(),
            "sending": sending.hex(),
            "receiving": receiving.hex(),
        },
        "messages": [
            {"kind": kind, "body": body.hex(), "plaintext": plaintext.decode()} for kind, body, plaintext in messages
        ],
        "unacknowledged": {
            "identity_private": pair.alice.identity.private.hex(),
            "sending": unacknowledged[0].hex(),
            "receiving": unacknowledged[1].hex(),
        },
        "responder": {
            "identity_private": pair.bob.identity.private.hex(),
            "signed_prekey_private": pair.bob.signed.private.hex(),
            "prekey_private": pair.bob.one_time.private.hex(),
            "kyber_prekey_seed": pair.bob.kyber.private.hex(),
        },
    }


def sealed() -> dict[str, Any]:
    master = e2ee.generate_data_key()
    wrapped = e2ee.wrap_data_key(master, 2, e2ee.generate_data_key())
    context = ("4915112345", "491701234567", 1, "sending")
    rings = {"derived": e2ee.Keyring.from_master(master, 1), "wrapped": e2ee.Keyring.unwrap(master, {2: wrapped})}
    return {
        "master_key": master.hex(),
        "wrapped_data_key_2": wrapped.hex(),
        "context": context,
        "plaintext": "sealed once, to be opened for ever",
        **{
            name: e2ee.Sealer(ring).seal(b"sealed once, to be opened for ever", context=context).hex()
            for name, ring in rings.items()
        },
    }


def sender_key() -> dict[str, Any]:
    """Return a member's record with two chains and stored keys, the sender's record, and messages of both chains."""
    group = groups.group()
    overtaken = group.sender.encrypt(b"a message that was overtaken")
    group.member.decrypt(group.sender.encrypt(b"overtaking"))
    late = group.sender.encrypt(b"late, from before the rotation")
    sender = e2ee.SenderKeyRecord.create(groups.DISTRIBUTION_ID)
    group.member.process(sender.distribution())
    skipped = sender.encrypt(b"skipped")
    group.member.decrypt(sender.encrypt(b"after the rotation"))
    member = group.member.to_bytes()
    messages = [
        (sender.encrypt(b"the next message"), b"the next message"),
        (skipped, b"skipped"),
        (overtaken, b"a message that was overtaken"),
        (late, b"late, from before the rotation"),
    ]
    return {
        "record_version": sender_keys.RECORD_VERSION,
        "member": member.hex(),
        "messages": [{"body": body.hex(), "plaintext": plaintext.decode()} for body, plaintext in messages],
        "sender": sender.to_bytes().hex(),
    }


def attachment() -> dict[str, Any]:
    key = attachments.generate_key()
    plaintext = b"a picture, a video, a document or a voice message"
    blob, digest = attachments.encrypt(key, plaintext)
    return {"key": key.hex(), "digest": digest.hex(), "blob": blob.hex(), "plaintext": plaintext.decode()}


def write(name: str, content: dict[str, Any]) -> None:
    path = HERE / name
    if not path.exists():
        path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    for session_version in parties.VERSIONS:
        write(f"session_v{session_version}_state{state.STATE_VERSION}.json", make(session_version))
    write("sealed_v1.json", sealed())
    write(f"sender_key_state{sender_keys.RECORD_VERSION}.json", sender_key())
    write("attachment.json", attachment())
