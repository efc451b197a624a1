"""Keys over HTTP: uploads, counts and rotation, and every invalid form of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from network.devices import signatures
from network.directory.bundles import PreKeyBundles
from network.directory.device_rate_limits import DeviceRateLimiter
from network.directory.refills import Refills
from network.settings import DeviceRateLimits
from tests.conftest import DatabaseFactory
from tests.manual_clock import ManualClock
from tests.network.support import (
    ALICE,
    BOB,
    CAROL,
    DAVE,
    REGISTRATION_KEY,
    TIMEOUT,
    Network,
    base64_text,
    kyber_prekey,
    one_time_prekey,
    reason,
    registration,
    signed_prekey,
)
from tidings.aio.batcher import BatcherFull
from tidings.e2ee.xeddsa import IdentityKeyPair
from tidings.storage.database import Connection
from tidings.storage.network import directory, prekeys
from tidings.wire import device


@pytest.fixture(params=[("tcp", "mariadb"), ("tcp", "sqlite")], ids=["mariadb", "sqlite"])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


def spoiled(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split(".")
    target: Any = body
    for name in parents:
        target = target[int(name)] if name.isdigit() else target[name]
    target[last] = value
    return body


def flipped(text: str) -> str:
    """Return text of the same length with another type byte: all keys here start with `B` (0x05) or `C` (0x08)."""
    return ("A" if text[0] != "A" else "B") + text[1:]


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        ("number", "+15550000001", "$.number"),
        ("number", "123456", "$.number"),
        ("number", 15550000001, "$.number"),
        ("registration_id", -1, "$.registration_id"),
        ("registration_id", 2**32, "$.registration_id"),
        ("identity_key", "BQ==", "$.identity_key"),
        ("identity_key", "not base64!", "$.identity_key"),
        ("identity_key", flipped, "identity_key"),
        ("signed_prekey.public", flipped, "signed_prekey.public"),
        ("signed_prekey.signature", "AAAA", "$.signed_prekey.signature"),
        ("signed_prekey.signature", flipped, "signed_prekey"),
        ("signed_prekey", None, "$.signed_prekey"),
        ("kyber_prekey.public", flipped, "kyber_prekey.public"),
        ("kyber_prekey.signature", flipped, "kyber_prekey"),
        ("kyber_prekey.public", "CAAA", "$.kyber_prekey.public"),
        ("prekeys.3.public", flipped, "prekeys[3].public"),
        ("prekeys.3.key_id", "three", "$.prekeys[3].key_id"),
        ("kyber_prekeys.0.signature", flipped, "kyber_prekeys[0]"),
        ("prekeys", [{}] * 101, "$.prekeys"),
    ],
)
async def test_an_invalid_key_is_refused_with_the_name_of_its_field(
    network: Network, path: str, value: Any, place: str
) -> None:
    await network.start()
    body = registration(ALICE, kyber_prekeys=1)
    if callable(value):
        old: Any = body
        for name in path.split("."):
            old = old[int(name)] if name.isdigit() else old[name]
        value = value(old)
    response = await network.request("POST", "/v1/registrations", spoiled(body, path, value), token=REGISTRATION_KEY)
    assert reason(response) == (400, "invalid")
    assert place in response[1]["error"]["detail"]


def left(prekeys: Iterable[int], kyber_prekeys: Iterable[int] = ()) -> dict[str, Any]:
    """Return the response that reports the remaining pre-keys."""
    ids, kyber_ids = list(prekeys), list(kyber_prekeys)
    return {
        "prekeys": len(ids),
        "kyber_prekeys": len(kyber_ids),
        "prekey_ids": ids,
        "kyber_prekey_ids": kyber_ids,
    }


async def test_keys_are_uploaded_counted_and_rotated_only_by_their_device(network: Network) -> None:
    await network.start()
    identity = IdentityKeyPair.generate()
    await network.register(ALICE)
    body = registration(BOB, prekeys=1, identity=identity)
    _, response = await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY)
    token, path = response["token"], f"/v1/keys/{BOB}"
    for wrong in ("", network.tokens[ALICE], REGISTRATION_KEY):
        assert reason(await network.request("GET", path, token=wrong)) == (401, "unauthorized")
        assert reason(await network.request("PUT", path, {}, token=wrong)) == (401, "unauthorized")
    assert await network.request("GET", path, token=token) == (200, left([1]))

    upload = {
        "signed_prekey": signed_prekey(identity, 2),
        "kyber_prekey": kyber_prekey(identity, 901),
        "prekeys": [one_time_prekey(key_id) for key_id in (1, 2, 3)],
        "kyber_prekeys": [kyber_prekey(identity, 1)],
    }
    # The same upload again, for example after a lost response, changes nothing.
    for _ in range(2):
        assert await network.request("PUT", path, upload, token=token) == (200, left([1, 2, 3], [1]))
    foreign = {"signed_prekey": signed_prekey(IdentityKeyPair.generate(), 3)}
    assert reason(await network.request("PUT", path, foreign, token=token)) == (400, "invalid")

    alice = await network.connect(ALICE)
    bundles = [(await alice.request(lambda n: device.Fetch(n, ALICE, [BOB]))).bundles[0] for _ in range(2)]
    assert [bundle.signed_prekey_id for bundle in bundles] == [2, 2]
    assert [bundle.kyber_prekey_id for bundle in bundles] == [1, 901]


@pytest.mark.parametrize("kind", ["prekeys", "kyber_prekeys", "the last resort"])
async def test_two_keys_of_one_kind_with_the_same_id_are_refused(network: Network, kind: str) -> None:
    await network.start()
    identity = IdentityKeyPair.generate()
    body = registration(ALICE, prekeys=1, identity=identity)
    _, response = await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY)
    twice: dict[str, Any]
    if kind == "the last resort":
        twice = {"kyber_prekey": kyber_prekey(identity, 7), "kyber_prekeys": [kyber_prekey(identity, 7)]}
    elif kind == "prekeys":
        twice = {"prekeys": [one_time_prekey(7), one_time_prekey(8), one_time_prekey(7)]}
    else:
        twice = {"kyber_prekeys": [kyber_prekey(identity, 7), kyber_prekey(identity, 7)]}
    upload = await network.request("PUT", f"/v1/keys/{ALICE}", twice, token=response["token"])
    again = await network.request("POST", "/v1/registrations", body | twice, token=REGISTRATION_KEY)
    for refused in (upload, again):
        assert reason(refused) == (400, "invalid")
        place = "prekeys" if kind == "prekeys" else "kyber_prekeys"
        assert refused[1]["error"]["detail"] == f"{place}: two keys have the id 7"
    assert await network.request("GET", f"/v1/keys/{ALICE}", token=response["token"]) == (200, left([1]))


async def test_one_time_kyber_keys_require_a_last_resort_key(network: Network) -> None:
    await network.start()
    identity = IdentityKeyPair.generate()
    body = registration(ALICE, kyber=False, identity=identity)
    one_time = {"kyber_prekeys": [kyber_prekey(identity, 7)]}
    refused = await network.request("POST", "/v1/registrations", body | one_time, token=REGISTRATION_KEY)
    assert reason(refused) == (400, "invalid")
    _, response = await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY)
    path, token = f"/v1/keys/{ALICE}", response["token"]
    assert reason(await network.request("PUT", path, one_time, token=token)) == (400, "invalid")
    both = one_time | {"kyber_prekey": kyber_prekey(identity, 900)}
    for upload in (both, one_time):
        assert (await network.request("PUT", path, upload, token=token))[0] == 200


async def test_a_registration_without_kyber_deletes_kyber_keys_from_the_directory(network: Network) -> None:
    await network.start()
    await network.register(BOB)
    identity = IdentityKeyPair.generate()
    bob = await network.connect(BOB)
    for kyber in (True, False):
        body = registration(ALICE, kyber_prekeys=int(kyber), kyber=kyber, identity=identity)
        assert (await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY))[0] == 201
        (bundle,) = (await bob.request(lambda n: device.Fetch(n, BOB, [ALICE]))).bundles
        assert (bundle.kyber_prekey is not None) is kyber
        assert bundle.identity_key == identity.public


async def test_one_time_keys_over_the_limit_are_refused(network: Network) -> None:
    await network.start()
    await network.register(ALICE, prekeys=100)
    path, token = f"/v1/keys/{ALICE}", network.tokens[ALICE]
    for start in range(100, 500, 100):
        keys = {"prekeys": [one_time_prekey(start + i + 1) for i in range(100)]}
        assert (await network.request("PUT", path, keys, token=token))[0] == 200
    response = await network.request("PUT", path, {"prekeys": [one_time_prekey(501)]}, token=token)
    assert reason(response) == (400, "too_many")
    assert await network.request("GET", path, token=token) == (200, left(range(1, 501)))


async def test_keys_of_a_later_epoch_are_not_changed_under_an_earlier_one(network: Network) -> None:
    """A program that was paused and resumes when no connection is logged in changes nothing."""
    await network.start()

    async def register(epoch: int) -> tuple[int, Any]:
        return await network.request(
            "POST", "/v1/registrations", registration(ALICE) | {"epoch": epoch}, token=REGISTRATION_KEY
        )

    status, registered = await register(4)
    assert status == 201, registered
    token = registered["token"]

    async def upload(epoch: int, key_id: int) -> int:
        body = {"epoch": epoch, "prekeys": [one_time_prekey(key_id)]}
        return (await network.request("PUT", f"/v1/keys/{ALICE}", body, token=token))[0]

    assert await upload(3, 900) == 409
    assert await upload(4, 901) == 200
    assert await upload(6, 902) == 200
    # The epoch survives a restart of the process.
    await network.stop()
    await network.start()
    assert await upload(5, 903) == 409
    status, refused = await register(5)
    assert (status, refused["error"]["reason"]) == (409, "stale_epoch")
    assert await upload(0, 904) == 200, "who counts no turns is not bound by them"
    left = await network.request("GET", f"/v1/keys/{ALICE}", token=token)
    assert {901, 902, 904} <= set(left[1]["prekey_ids"])
    assert not {900, 903} & set(left[1]["prekey_ids"])
    assert (await register(7))[0] == 201
    assert (await register(6))[0] == 409
    # Epochs start again after the number was unregistered.
    token = (await register(8))[1]["token"]
    assert (await network.request("DELETE", f"/v1/registrations/{ALICE}", token=token))[0] in (200, 204)
    assert (await register(1))[0] == 201


async def test_a_repeated_upload_does_not_add_a_key_again_that_was_handed_out(network: Network) -> None:
    await network.start()
    identity = IdentityKeyPair.generate()
    await network.register(ALICE)
    body = registration(BOB, prekeys=0, identity=identity)
    token = (await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY))[1]["token"]
    path = f"/v1/keys/{BOB}"
    upload = {
        "prekeys": [one_time_prekey(key_id) for key_id in (1, 2)],
        "kyber_prekeys": [kyber_prekey(identity, key_id) for key_id in (3, 4)],
    }
    assert await network.request("PUT", path, upload, token=token) == (200, left([1, 2], [3, 4]))
    alice = await network.connect(ALICE)
    await alice.request(lambda n: device.Fetch(n, ALICE, [BOB]))
    # The process that answers the repetition may be another one.
    await network.stop()
    await network.start()
    assert await network.request("PUT", path, upload, token=token) == (200, left([2], [4]))
    # The device sends them together with newer ones. An id may be used again for another key.
    more = upload | {"prekeys": [*upload["prekeys"], one_time_prekey(5), one_time_prekey(6)]}
    assert await network.request("PUT", path, more, token=token) == (200, left([2, 5, 6], [4]))
    again = {"prekeys": [one_time_prekey(1)]}
    assert await network.request("PUT", path, again, token=token) == (200, left([1, 2, 5, 6], [4]))
    # A registration deletes all keys, so that the device may upload those that were left.
    token = (await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY))[1]["token"]
    assert await network.request("PUT", path, upload, token=token) == (200, left([1, 2], [3, 4]))


async def test_the_latest_thousand_uploaded_keys_are_remembered(database_factory: DatabaseFactory) -> None:
    database = await database_factory("network")
    keys = [prekeys.PreKeyRow(ALICE, key_id, bytes(33)) for key_id in range(1, 1202)]

    async def upload(*some: prekeys.PreKeyRow) -> list[int]:
        async with database.transaction() as connection:
            found, _ = await prekeys.upload(connection, ALICE, some, [])
            for _ in found:
                await prekeys.take_one_each(connection, [ALICE])
        return found

    for start in range(0, 1201, 100):
        await upload(*keys[start : start + 100])
    assert await upload(*keys[201:]) == []
    assert await upload(keys[200]) == [201]


async def test_keys_of_a_device_that_registers_again_meanwhile_are_refused(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The private halves belong to the former device, and nobody could read what is encrypted to them."""
    await network.start()
    await network.register(ALICE)
    check, registered = signatures.check, list[int]()

    async def register_meanwhile(devices: Any) -> None:
        await check(devices)
        if not registered:
            registered.append(1)
            await network.register(ALICE, prekeys=2)

    monkeypatch.setattr(signatures, "check", register_meanwhile)
    upload = {"prekeys": [one_time_prekey(900)]}
    answer = await network.request("PUT", f"/v1/keys/{ALICE}", upload, token=network.tokens[ALICE])
    assert reason(answer) == (401, "unauthorized")
    token = network.tokens[ALICE]
    assert await network.request("GET", f"/v1/keys/{ALICE}", token=token) == (200, left([1, 2]))


@pytest.mark.parametrize("pair", [("tcp", "mariadb")], ids=["mariadb"], indirect=True)
async def test_of_two_first_registrations_at_once_only_the_keys_of_the_last_are_handed_out(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start()
    register, both = directory.register, asyncio.Barrier(2)

    async def register_together(connection: Connection, devices: Sequence[directory.RegisteredDevice]) -> None:
        # Neither transaction has found the number in the directory.
        async with asyncio.timeout(TIMEOUT):
            await both.wait()
        await register(connection, devices)

    monkeypatch.setattr(directory, "register", register_together)
    bodies = {"a" * 43: registration(ALICE, prekeys=3), "b" * 43: registration(ALICE, prekeys=3)}
    answers = await asyncio.gather(
        *(
            network.request("POST", "/v1/registrations", body | {"token": token}, token=REGISTRATION_KEY)
            for token, body in bodies.items()
        )
    )
    assert [status for status, _ in answers] == [201, 201]
    monkeypatch.undo()
    await network.register(BOB)
    bob = await network.connect(BOB)
    (bundle,) = (await bob.request(lambda n: device.Fetch(n, BOB, [ALICE]))).bundles
    (last,) = [body for body in bodies.values() if body["identity_key"] == base64_text(bundle.identity_key)]
    assert base64_text(bundle.prekey or b"") == last["prekeys"][0]["public"]


async def test_a_refused_fetch_takes_no_keys(database_factory: DatabaseFactory) -> None:
    database, clock = await database_factory("network"), ManualClock()
    bundles = PreKeyBundles(database, Refills(), DeviceRateLimiter(DeviceRateLimits(), clock))
    bundles._batcher.max_pending = 2
    numbers = [ALICE, BOB, CAROL]
    rows = [
        directory.RegisteredDevice(
            number, 1, bytes(33), 1, bytes(33), bytes(64), None, None, None, token_hash=bytes(32), registered_at=0
        )
        for number in numbers
    ]
    async with database.transaction() as connection:
        await directory.register(connection, rows)
        await prekeys.put(connection, [prekeys.PreKeyRow(number, 1, bytes(33)) for number in numbers])
    with pytest.raises(BatcherFull):
        await bundles.fetch(DAVE, numbers)
    # Later fetches wait for those that were queued before.
    assert len(await bundles.fetch(DAVE, numbers[:1])) == 1
    async with database.reading() as connection:
        left = await prekeys.count_left(connection, numbers)
    assert [left[number].prekeys for number in numbers] == [0, 1, 1]
