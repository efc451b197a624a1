"""A device of each official release and ours read each other's messages, one to one and in groups."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tidings import e2ee

HERE = Path(__file__).parent
# The first knows X3DH and no post-quantum ratchet, the second negotiates that ratchet, the last requires it.
OLD, NEGOTIATING, NEWEST = "signal-0.68.1", "signal-0.79.0", "signal-0.103.0"
RELEASES = (OLD, NEGOTIATING, NEWEST)
LONG = 300  # messages in one direction


class Official:
    """The other device, in a separate process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    async def __call__(self, call: str, **arguments: Any) -> dict[str, Any]:
        self._input.write(json.dumps({"call": call, **arguments}).encode() + b"\n")
        line = await self._output.readline()
        response: dict[str, Any] = json.loads(line)
        assert "error" not in response, response["error"]
        return response

    async def read(self, kind: int, body: bytes) -> bytes:
        return _decode((await self("decrypt", kind=kind, body=_encode(body)))["plaintext"])

    async def write(self, plaintext: bytes) -> tuple[int, bytes]:
        response = await self("encrypt", plaintext=_encode(plaintext))
        return response["kind"], _decode(response["body"])

    async def bundle(self, *, kyber: bool) -> e2ee.PreKeyBundle:
        response = await self("bundle")
        fields = {name: _decode(value) if isinstance(value, str) else value for name, value in response.items()}
        if not kyber:
            fields |= dict.fromkeys(("kyber_prekey_id", "kyber_prekey", "kyber_prekey_signature"))
        return e2ee.PreKeyBundle(**fields)


@dataclasses.dataclass
class Ours:
    """Our device."""

    identity: e2ee.IdentityKeyPair = dataclasses.field(default_factory=e2ee.IdentityKeyPair.generate)
    record: e2ee.SessionRecord | None = None

    def __post_init__(self) -> None:
        self.signed = e2ee.SignedPreKey.generate(self.identity, 11)
        self.prekey = e2ee.PreKey.generate(12)
        self.kyber = e2ee.KyberPreKey.generate(self.identity, 13)

    def bundle(self, *, kyber: bool) -> dict[str, Any]:
        made: dict[str, Any] = {
            "registration_id": 815,
            "identity_key": _encode(self.identity.public),
            "prekey_id": self.prekey.key_id,
            "prekey": _encode(self.prekey.public),
            "signed_prekey_id": self.signed.key_id,
            "signed_prekey": _encode(self.signed.public),
            "signed_prekey_signature": _encode(self.signed.signature),
            "kyber_prekey_id": self.kyber.key_id,
            "kyber_prekey": _encode(self.kyber.public),
            "kyber_prekey_signature": _encode(self.kyber.signature),
        }
        if not kyber:
            made |= dict.fromkeys(("kyber_prekey_id", "kyber_prekey", "kyber_prekey_signature"))
        return made

    def write(self, plaintext: bytes) -> tuple[int, bytes]:
        assert self.record is not None
        return self.record.encrypt(plaintext)

    def read(self, kind: int, body: bytes) -> bytes:
        if kind == e2ee.PREKEY:
            first = e2ee.PreKeySignalMessage.parse(body)
            if self.record is None or self.record.needs_setup(first):
                kyber = self.kyber if first.kyber_prekey_id is not None else None
                self.record = e2ee.SessionRecord.respond(
                    self.record, self.identity, first, self.signed, self.prekey, kyber
                )
        assert self.record is not None
        return self.record.decrypt(kind, body)


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text)


@pytest.fixture
async def official(release: str) -> AsyncIterator[Official]:
    process = await asyncio.create_subprocess_exec(
        *("node", str(HERE / "peer.mjs"), release),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"]},
    )
    yield Official(process)
    assert process.stdin is not None
    process.stdin.close()
    assert await process.wait() == 0


async def _converse(ours: Ours, official: Official) -> None:
    """Exchange messages alternately, in bursts that arrive in order and in reverse."""
    for turn in range(6):
        texts = [f"{turn}.{number} — Grüße".encode() for number in range(7)]
        sent = [ours.write(text) for text in texts]
        order = range(7) if turn % 2 else range(6, -1, -1)
        for number in order:
            assert await official.read(*sent[number]) == texts[number]
        received = [await official.write(text) for text in texts]
        for number in order:
            assert ours.read(*received[number]) == texts[number]


@pytest.mark.parametrize("kyber", [True, False], ids=["pqxdh", "x3dh"])
@pytest.mark.parametrize("release", RELEASES)
async def test_a_session_that_we_initiate_carries_messages_both_ways(
    official: Official, release: str, kyber: bool
) -> None:
    if kyber and release == OLD:
        pytest.skip("what we set up with a Kyber pre-key has the post-quantum ratchet, which it cannot follow")
    if not kyber and release != OLD:
        pytest.skip("it demands a Kyber pre-key")
    ours = Ours()
    bundle = await official.bundle(kyber=kyber)
    bundle.verify()
    ours.record = e2ee.SessionRecord.initiate(ours.identity, 815, bundle)
    assert ours.record.version == (4 if kyber else 3)
    await _converse(ours, official)
    assert not ours.record.unacknowledged


@pytest.mark.parametrize("kyber", [True, False], ids=["pqxdh", "x3dh"])
@pytest.mark.parametrize("release", RELEASES)
async def test_a_session_that_they_initiate_carries_messages_both_ways(
    official: Official, release: str, kyber: bool
) -> None:
    if not kyber and release != OLD:
        pytest.skip("it demands a Kyber pre-key")
    ours = Ours()
    await official("process", bundle=ours.bundle(kyber=kyber))
    kind, body = await official.write(b"hello")
    assert kind == e2ee.PREKEY
    assert ours.read(kind, body) == b"hello"
    assert ours.record is not None
    assert ours.record.version == (4 if kyber else 3)
    await _converse(ours, official)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_session_survives_storage_and_hundreds_of_one_way_messages(official: Official, release: str) -> None:
    ours = Ours()
    ours.record = e2ee.SessionRecord.initiate(ours.identity, 815, await official.bundle(kyber=release != OLD))
    for number in range(LONG):
        assert await official.read(*ours.write(b"%d" % number)) == b"%d" % number
        if number % 50 == 0:
            halves = ours.record.sending_half(), ours.record.receiving_half()
            ours.record = e2ee.SessionRecord.load(ours.identity, *halves)
    assert ours.read(*await official.write(b"all of them")) == b"all of them"


@pytest.mark.parametrize("release", RELEASES)
async def test_both_sides_read_each_others_sender_keys(official: Official) -> None:
    own, theirs = e2ee.SenderKeyRecord.create(), None
    await official("process_distribution", distribution=_encode(own.distribution()))
    distribution = _decode((await official("distribute"))["distribution"])
    theirs = e2ee.SenderKeyRecord(e2ee.DistributionMessage.parse(distribution).distribution_id)
    theirs.process(distribution)
    sent = [(b"%d" % number, own.encrypt(b"%d" % number)) for number in range(20)]
    for text, body in reversed(sent):
        assert _decode((await official("group_decrypt", body=_encode(body)))["plaintext"]) == text
    received = [await official("group_encrypt", plaintext=_encode(b"%d" % number)) for number in range(20)]
    for number in range(19, -1, -1):
        assert theirs.decrypt(_decode(received[number]["body"])) == b"%d" % number
