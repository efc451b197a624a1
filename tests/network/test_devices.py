"""Registration, keys and blocks over HTTP, and every way to get them wrong."""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Iterable
from typing import Any

import pytest

from network.devices import rations
from network.errors import TooMany
from tests.network.support import (
    ALICE,
    BOB,
    REGISTRATION_KEY,
    Network,
    kyber_prekey,
    one_time_prekey,
    registration,
    signed_prekey,
)
from tidings.e2ee.identity import IdentityKeyPair
from tidings.runtime.clock import ManualClock
from tidings.wire import device


@pytest.fixture(params=[("tcp", "mariadb"), ("tcp", "sqlite")], ids=["mariadb", "sqlite"])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


def reason(answer: tuple[int, dict[str, Any]]) -> tuple[int, str]:
    status, body = answer
    assert set(body) == {"error"}
    assert body["error"]["detail"]
    return status, body["error"]["reason"]


async def sent_code(network: Network, caplog: pytest.LogCaptureFixture, number: str = ALICE) -> str:
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert (await network.request("POST", "/v1/codes", {"number": number}))[0] == 202
    (record,) = [record for record in caplog.records if record.message == "code.issued"]
    code: str = record.__dict__["code"]
    return code


async def test_a_code_from_the_log_registers_a_number_once(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    await network.start()
    code = await sent_code(network, caplog)
    status, body = await network.request("POST", "/v1/registrations", {**registration(ALICE), "code": code})
    assert (status, body["number"]) == (201, ALICE)
    network.tokens[ALICE] = body["token"]
    await network.connect(ALICE)
    again = await network.request("POST", "/v1/registrations", {**registration(ALICE), "code": code})
    assert reason(again) == (401, "wrong_code")


async def test_a_code_is_void_after_five_wrong_guesses(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    await network.start()
    code = await sent_code(network, caplog)
    wrong = "000000" if code != "000000" else "111111"
    for _ in range(5):
        answer = await network.request("POST", "/v1/registrations", {**registration(ALICE), "code": wrong})
        assert reason(answer) == (401, "wrong_code")
    answer = await network.request("POST", "/v1/registrations", {**registration(ALICE), "code": code})
    assert reason(answer) == (401, "wrong_code")


async def test_one_address_has_so_many_codes_and_wrong_tries_and_the_registration_key_has_no_such_limit(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    code = await sent_code(network, caplog)
    for i in range(1, rations.CODES_EACH):
        assert (await network.request("POST", "/v1/codes", {"number": f"1555030{i:04}"}))[0] == 202
    async with network.http.post("/v1/codes", json={"number": BOB}) as answer:
        assert answer.status == 429
        assert int(answer.headers["Retry-After"]) == pytest.approx(rations.SECONDS_EACH, abs=1)
    body = registration(ALICE)
    for _ in range(rations.TRIES_EACH):
        tried = await network.request("POST", "/v1/registrations", {**body, "number": BOB, "code": "000000"})
        assert reason(tried) == (401, "wrong_code")
    # Also the right one: how it would be answered is what a guess asks.
    right = {**body, "code": code}
    assert reason(await network.request("POST", "/v1/registrations", right)) == (429, "rate_limited")
    await network.register(BOB)
    clock.advance(rations.TRY_SECONDS_EACH)
    assert (await network.request("POST", "/v1/registrations", right))[0] == 201
    assert (await network.request("POST", "/v1/codes", {"number": BOB}))[0] == 202


def test_all_addresses_together_have_so_many_tries_and_right_ones_do_not_count() -> None:
    clock = ManualClock()
    limits = rations.Rations(clock)
    for _ in range(3 * rations.TRIES_EACH):
        limits.take_try("192.0.2.1")
        limits.was_right("192.0.2.1")
    tried = 0
    with pytest.raises(TooMany) as refused:
        for i in itertools.count():
            limits.take_try(f"198.51.100.{i}")
            tried = i + 1
    assert tried in (rations.TRIES_ALL - 1, rations.TRIES_ALL)
    assert 0 < refused.value.retry_after <= rations.TRY_SECONDS_ALL


async def test_a_code_is_valid_for_ten_minutes_and_for_its_own_number(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    code = await sent_code(network, caplog)
    stolen = await network.request("POST", "/v1/registrations", {**registration(BOB), "code": code})
    assert reason(stolen) == (401, "wrong_code")
    clock.advance(601)
    late = await network.request("POST", "/v1/registrations", {**registration(ALICE), "code": code})
    assert reason(late) == (401, "wrong_code")


async def test_a_client_that_asks_for_http_2_is_served_over_http_1(network: Network) -> None:
    await network.start()
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}
    for number in ("15550300001", "15550300002"):
        async with network.http.post("/v1/codes", json={"number": number}, headers=headers) as answer:
            assert (answer.status, (await answer.json())["number"]) == (202, number)


async def test_codes_for_one_number_are_rationed(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    for _ in range(5):
        assert (await network.request("POST", "/v1/codes", {"number": ALICE}))[0] == 202
        assert reason(await network.request("POST", "/v1/codes", {"number": ALICE})) == (429, "rate_limited")
        clock.advance(31)
    async with network.http.post("/v1/codes", json={"number": ALICE}) as answer:
        assert answer.status == 429
        assert 3000 < int(answer.headers["Retry-After"]) <= 3600
    assert (await network.request("POST", "/v1/codes", {"number": BOB}))[0] == 202
    clock.advance(3600)
    assert (await network.request("POST", "/v1/codes", {"number": ALICE}))[0] == 202


async def test_the_registration_key_registers_without_a_code_and_nothing_else_does(network: Network) -> None:
    await network.start()
    for token in ("", "wrong", REGISTRATION_KEY + "x", "schlüssel"):
        for path, body in (
            ("/v1/registrations", registration(ALICE)),
            ("/v1/registrations/bulk", {"registrations": [registration(ALICE)]}),
        ):
            assert reason(await network.request("POST", path, body, token=token)) == (401, "unauthorized")
    status, answer = await network.request("POST", "/v1/registrations", registration(ALICE), token=REGISTRATION_KEY)
    assert (status, answer["number"]) == (201, ALICE)
    assert len(answer["token"]) >= 43


async def test_a_bulk_of_500_registers_and_one_more_does_not(network: Network) -> None:
    await network.start()
    bodies = [registration(f"1555030{i:04}", prekeys=3, kyber=False) for i in range(501)]
    answer = await network.request("POST", "/v1/registrations/bulk", {"registrations": bodies}, token=REGISTRATION_KEY)
    assert reason(answer) == (400, "invalid")
    status, body = await network.request(
        "POST", "/v1/registrations/bulk", {"registrations": bodies[:500]}, token=REGISTRATION_KEY
    )
    assert status == 201
    assert [entry["number"] for entry in body["registrations"]] == [entry["number"] for entry in bodies[:500]]
    assert len({entry["token"] for entry in body["registrations"]}) == 500


async def test_a_bulk_with_a_number_twice_or_one_bad_key_registers_nobody(network: Network) -> None:
    await network.start()
    twice = {"registrations": [registration(ALICE), registration(ALICE)]}
    bad = {"registrations": [registration(ALICE), {**registration(BOB), "identity_key": "AAAA"}]}
    for bulk in (twice, bad):
        answer = await network.request("POST", "/v1/registrations/bulk", bulk, token=REGISTRATION_KEY)
        assert reason(answer) == (400, "invalid")
    assert (await network.request("GET", f"/v1/keys/{ALICE}", token="any"))[0] == 401


def spoiled(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *parents, last = path.split(".")
    target: Any = body
    for name in parents:
        target = target[int(name)] if name.isdigit() else target[name]
    target[last] = value
    return body


def flipped(text: str) -> str:
    """The same length, another type byte: all keys here start with `B` (0x05) or `C` (0x08)."""
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
async def test_a_key_that_is_not_what_it_says_is_refused_with_its_place(
    network: Network, path: str, value: Any, place: str
) -> None:
    await network.start()
    body = registration(ALICE, kyber_prekeys=1)
    if callable(value):
        old: Any = body
        for name in path.split("."):
            old = old[int(name)] if name.isdigit() else old[name]
        value = value(old)
    answer = await network.request("POST", "/v1/registrations", spoiled(body, path, value), token=REGISTRATION_KEY)
    assert reason(answer) == (400, "invalid")
    assert place in answer[1]["error"]["detail"]


def left(prekeys: Iterable[int], kyber_prekeys: Iterable[int] = ()) -> dict[str, Any]:
    """What a device is told that it has left."""
    ids, kyber_ids = list(prekeys), list(kyber_prekeys)
    return {
        "prekeys": len(ids),
        "kyber_prekeys": len(kyber_ids),
        "prekey_ids": ids,
        "kyber_prekey_ids": kyber_ids,
    }


async def test_keys_are_uploaded_counted_and_rotated_by_their_device_alone(network: Network) -> None:
    await network.start()
    identity = IdentityKeyPair.generate()
    await network.register(ALICE)
    body = registration(BOB, prekeys=1, identity=identity)
    _, answer = await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY)
    token, path = answer["token"], f"/v1/keys/{BOB}"
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
    # The same upload again, after a lost answer say, changes nothing.
    for _ in range(2):
        assert await network.request("PUT", path, upload, token=token) == (200, left([1, 2, 3], [1]))
    foreign = {"signed_prekey": signed_prekey(IdentityKeyPair.generate(), 3)}
    assert reason(await network.request("PUT", path, foreign, token=token)) == (400, "invalid")

    alice = await network.connect(ALICE)
    bundles = [(await alice.ask(lambda n: device.Fetch(n, ALICE, [BOB]))).bundles[0] for _ in range(2)]
    assert [bundle.signed_prekey_id for bundle in bundles] == [2, 2]
    assert [bundle.kyber_prekey_id for bundle in bundles] == [1, 901]


@pytest.mark.parametrize("kind", ["prekeys", "kyber_prekeys", "the last resort"])
async def test_two_keys_of_one_kind_with_one_id_are_refused_wherever_they_come(network: Network, kind: str) -> None:
    await network.start()
    identity = IdentityKeyPair.generate()
    body = registration(ALICE, prekeys=1, identity=identity)
    _, answer = await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY)
    twice: dict[str, Any]
    if kind == "the last resort":
        twice = {"kyber_prekey": kyber_prekey(identity, 7), "kyber_prekeys": [kyber_prekey(identity, 7)]}
    elif kind == "prekeys":
        twice = {"prekeys": [one_time_prekey(7), one_time_prekey(8), one_time_prekey(7)]}
    else:
        twice = {"kyber_prekeys": [kyber_prekey(identity, 7), kyber_prekey(identity, 7)]}
    upload = await network.request("PUT", f"/v1/keys/{ALICE}", twice, token=answer["token"])
    again = await network.request("POST", "/v1/registrations", body | twice, token=REGISTRATION_KEY)
    for refused in (upload, again):
        assert reason(refused) == (400, "invalid")
        place = "prekeys" if kind == "prekeys" else "kyber_prekeys"
        assert refused[1]["error"]["detail"] == f"{place}: two keys have the id 7"
    assert await network.request("GET", f"/v1/keys/{ALICE}", token=answer["token"]) == (200, left([1]))


async def test_one_time_kyber_keys_need_a_last_resort_or_they_would_end_in_a_step_down(network: Network) -> None:
    await network.start()
    identity = IdentityKeyPair.generate()
    body = registration(ALICE, kyber=False, identity=identity)
    one_time = {"kyber_prekeys": [kyber_prekey(identity, 7)]}
    refused = await network.request("POST", "/v1/registrations", body | one_time, token=REGISTRATION_KEY)
    assert reason(refused) == (400, "invalid")
    _, answer = await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY)
    path, token = f"/v1/keys/{ALICE}", answer["token"]
    assert reason(await network.request("PUT", path, one_time, token=token)) == (400, "invalid")
    both = one_time | {"kyber_prekey": kyber_prekey(identity, 900)}
    for upload in (both, one_time):
        assert (await network.request("PUT", path, upload, token=token))[0] == 200


async def test_a_registration_without_kyber_takes_the_kyber_keys_out_of_the_directory(network: Network) -> None:
    await network.start()
    await network.register(BOB)
    identity = IdentityKeyPair.generate()
    bob = await network.connect(BOB)
    for kyber in (True, False):
        body = registration(ALICE, kyber_prekeys=int(kyber), kyber=kyber, identity=identity)
        assert (await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY))[0] == 201
        (bundle,) = (await bob.ask(lambda n: device.Fetch(n, BOB, [ALICE]))).bundles
        assert (bundle.kyber_prekey is not None) is kyber
        assert bundle.identity_key == identity.public


async def test_more_one_time_keys_than_are_kept_are_refused(network: Network) -> None:
    await network.start()
    await network.register(ALICE, prekeys=100)
    path, token = f"/v1/keys/{ALICE}", network.tokens[ALICE]
    for start in range(100, 500, 100):
        keys = {"prekeys": [one_time_prekey(start + i + 1) for i in range(100)]}
        assert (await network.request("PUT", path, keys, token=token))[0] == 200
    answer = await network.request("PUT", path, {"prekeys": [one_time_prekey(501)]}, token=token)
    assert reason(answer) == (400, "too_many")
    assert await network.request("GET", path, token=token) == (200, left(range(1, 501)))


async def test_a_device_that_unregisters_is_unknown_to_everybody(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    alice.send(ALICE, BOB, "one")
    bob.ack(*await bob.deliveries(1))
    await alice.accepted(1)
    path, token = f"/v1/registrations/{BOB}", network.tokens[BOB]
    assert reason(await network.request("DELETE", path, token=network.tokens[ALICE])) == (401, "unauthorized")
    assert await network.request("DELETE", path, token=token) == (200, {"number": BOB, "registered": False})
    assert (await bob.next(device.Closing)).number == BOB
    alice.send(ALICE, BOB, "two")
    assert (await alice.next(device.Refused)).reason == device.NO_SUCH_NUMBER
    assert (await alice.ask(lambda n: device.Check(n, ALICE, [BOB]))).registered == []
    assert (await alice.ask(lambda n: device.Fetch(n, ALICE, [BOB]))).bundles == []
    assert reason(await network.request("DELETE", path, token=token)) == (401, "unauthorized")


@pytest.mark.parametrize(
    ("method", "path", "data", "expected"),
    [
        ("POST", "/v1/codes", b"{", (400, "malformed_json")),
        ("POST", "/v1/codes", b"", (400, "malformed_json")),
        ("POST", "/v1/codes", b"\xff\xfe", (400, "malformed_json")),
        ("POST", "/v1/codes", b'{"number": "\xff"}', (400, "malformed_json")),
        ("POST", "/v1/codes", b'{"x":' + b"[" * 1_900 + b"]" * 1_900 + b"}", (400, "malformed_json")),
        ("POST", "/v1/codes", b"[]", (400, "invalid")),
        ("POST", "/v1/codes", b"{}", (400, "invalid")),
        ("POST", "/v1/codes", b"x" * (256 * 1024 + 1), (413, "too_large")),
        ("GET", "/v1/codes", b"", (405, "wrong_method")),
        ("PATCH", "/v1/registrations", b"", (405, "wrong_method")),
        ("POST", "/v2/codes", b"{}", (404, "not_found")),
        ("POST", "/v1/codes/", b"{}", (404, "not_found")),
        ("GET", "/", b"", (404, "not_found")),
        ("GET", "/v1/keys/alice", b"", (404, "not_found")),
        ("PUT", "/v1/blocks/15550000001/+1", b"", (404, "not_found")),
        ("GET", "/v1/connect", b"", (404, "not_found")),
    ],
)
async def test_a_wrong_request_gets_the_status_and_reason_that_say_what_to_mend(
    network: Network, method: str, path: str, data: bytes, expected: tuple[int, str]
) -> None:
    await network.start()
    await network.register(ALICE)
    answer = await network.request(method, path, token=network.tokens[ALICE], data=data)
    assert reason(answer) == expected


@pytest.mark.one_node
async def test_health_and_metrics_tell_what_is_there(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    await network.connect(ALICE)
    status, body = await network.request("GET", "/health")
    assert (status, body["status"], body["database"], body["devices_online"]) == (200, "ok", "ok", 1)
    async with network.http.get("/metrics") as answer:
        text = await answer.text()
    assert "tidings_network_connections 1.0" in text
    assert "tidings_network_envelopes_total" in text


async def test_the_same_registration_again_changes_nothing_and_needs_no_other_proof(network: Network) -> None:
    await network.start()
    body = registration(ALICE) | {"token": "t" * 43}
    path = "/v1/registrations"
    assert (await network.request("POST", path, body))[0] == 401
    status, answer = await network.request("POST", path, body, token=REGISTRATION_KEY)
    assert (status, answer["token"]) == (201, body["token"])
    alice = await network.connect()
    await alice.login(ALICE, body["token"])
    await network.register(BOB)
    bob = await network.connect(BOB)
    await bob.ask(functools.partial(device.Fetch, number=BOB, numbers=[ALICE]))
    # A one-time pre-key was handed out: it must not be there again.
    assert (await network.request("POST", path, body))[0] == 201
    assert (await network.request("GET", f"/v1/keys/{ALICE}", token=body["token"]))[1]["prekeys"] == 24
    await alice.nothing_came()
    # With other keys it is another registration, and so is another token.
    for other in (registration(ALICE) | {"token": body["token"]}, body | {"token": "u" * 43}):
        assert (await network.request("POST", path, other))[0] == 401
    assert (await network.request("POST", path, body | {"token": "t" * 42}))[0] == 400


async def test_a_whole_bulk_again_changes_nothing(network: Network) -> None:
    await network.start()
    bodies = [registration(number) | {"token": letter * 43} for number, letter in ((ALICE, "a"), (BOB, "b"))]
    for _ in range(2):
        status, answer = await network.request(
            "POST", "/v1/registrations/bulk", {"registrations": bodies}, token=REGISTRATION_KEY
        )
        assert status == 201
        assert [entry["token"] for entry in answer["registrations"]] == ["a" * 43, "b" * 43]
    client = await network.connect()
    await client.login(ALICE, "a" * 43)


async def test_keys_of_a_later_epoch_are_not_changed_under_an_earlier_one_whoever_is_there(network: Network) -> None:
    """A program that was stopped in its turn, and goes on when nobody is logged in, changes nothing."""
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
    # It outlives the process.
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
    # Whoever has the number next begins anew.
    token = (await register(8))[1]["token"]
    assert (await network.request("DELETE", f"/v1/registrations/{ALICE}", token=token))[0] in (200, 204)
    assert (await register(1))[0] == 201
