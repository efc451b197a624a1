"""A device's own keys: their ids, the uploaded parts, and the stored parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tidings import e2ee
from tidings.client import keys
from tidings.client.keys import KeySet

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "wire" / "registration.json").read_text())


def fill(first: int, seed: int, size: int) -> bytes:
    return bytes([first]) + bytes((seed + n) % 256 for n in range(size - 1))


IDENTITY_KEY = fill(5, 1, 33)
SIGNED = e2ee.SignedPreKey(7, fill(5, 3, 33), fill(0, 4, 32), fill(9, 5, 64))
KYBER = e2ee.KyberPreKey(8, fill(8, 6, 1569), fill(0, 7, 64), fill(9, 8, 64))
ONE_TIME = [e2ee.PreKey(9 + n, fill(5, 9 + n, 33), fill(0, 20 + n, 32)) for n in range(2)]
KYBER_ONE_TIME = [e2ee.KyberPreKey(12, fill(8, 12, 1569), fill(0, 13, 64), fill(9, 14, 64))]
HANDSET, BUSINESS = "15550100001", "15550000000"


@pytest.mark.parametrize(
    ("name", "body"),
    [
        (
            "business",
            KeySet(SIGNED, KYBER, ONE_TIME).registration(BUSINESS, 4711, IDENTITY_KEY, token="t" * 43, epoch=3),
        ),
        (
            "business_by_code",
            KeySet(SIGNED, KYBER, ONE_TIME).registration(
                BUSINESS, 4711, IDENTITY_KEY, code="123456", token="t" * 43, epoch=3
            ),
        ),
        ("handset", KeySet(SIGNED, KYBER, ONE_TIME, KYBER_ONE_TIME).registration(HANDSET, 4711, IDENTITY_KEY)),
        ("robot_without_one_time_keys", KeySet(SIGNED).registration(HANDSET, 4711, IDENTITY_KEY)),
        ("business_refill", KeySet(one_time=ONE_TIME).upload(epoch=3)),
        ("business_rotation", KeySet(SIGNED, KYBER).upload(epoch=3)),
        ("handset_refill", KeySet(one_time=ONE_TIME, kyber_one_time=KYBER_ONE_TIME).upload()),
        ("handset_rotation", KeySet(SIGNED, KYBER).upload()),
    ],
)
def test_key_uploads_are_encoded_as_recorded(name: str, body: msgspec.Struct) -> None:
    expected = {key: value for key, value in GOLDEN[name].items() if value != []}
    assert json.loads(msgspec.json.encode(body)) == expected


def test_no_private_key_is_uploaded() -> None:
    made, _ = keys.generate(e2ee.IdentityKeyPair.generate(), 1, one_time=2, kyber_one_time=1, lasting=True)
    sent = msgspec.msgpack.encode(made.upload())
    assert made.signed is not None
    assert made.kyber_last is not None
    halves = [(key.public, key.private) for key in made.one_time]
    halves += [(key.public, key.private) for key in (made.kyber_last, *made.kyber_one_time)]
    halves.append((made.signed.public, made.signed.private))
    for public, private in halves:
        assert public in sent
        assert private not in sent


def test_key_ids_continue_and_skip_those_in_use() -> None:
    identity = e2ee.IdentityKeyPair.generate()
    made, following = keys.generate(identity, e2ee.MAX_KEY_ID, one_time=2, lasting=True, used={1, 3})
    assert made.signed is not None
    assert made.kyber_last is not None
    ids = [made.signed.key_id, made.kyber_last.key_id, *(key.key_id for key in made.one_time)]
    assert (ids, following) == ([e2ee.MAX_KEY_ID, 2, 4, 5], 6)
    assert keys.generate(identity, 6) == (KeySet(one_time=[], kyber_one_time=[]), 6)


@pytest.mark.parametrize("uploadable", [True, False])
def test_packed_keys_unpack_unchanged(uploadable: bool) -> None:
    identity = e2ee.IdentityKeyPair.generate()
    made, _ = keys.generate(identity, 1, one_time=1, lasting=True)
    assert made.signed is not None
    assert made.kyber_last is not None
    (one_time,) = made.one_time
    assert keys.unpack_one_time(one_time.key_id, keys.pack(one_time, uploadable=uploadable)) == one_time
    signed = keys.unpack_signed(1, keys.pack(made.signed, uploadable=uploadable))
    kyber = keys.unpack_kyber(2, keys.pack(made.kyber_last, uploadable=uploadable))
    assert (signed.public, signed.private, kyber.private) == (
        made.signed.public,
        made.signed.private,
        made.kyber_last.private,
    )
    assert (signed == made.signed) is uploadable
    assert (kyber == made.kyber_last) is uploadable


def test_keys_packed_in_older_formats_are_still_read() -> None:
    # The format in which businesses and handsets have stored them.
    assert keys.unpack_signed(7, SIGNED.public + SIGNED.private + SIGNED.signature) == SIGNED
    assert keys.unpack_kyber(8, KYBER.public + KYBER.private + KYBER.signature) == KYBER
    assert keys.unpack_kyber(8, KYBER.private).private == KYBER.private
    assert keys.unpack_signed(7, SIGNED.public + SIGNED.private).private == SIGNED.private
