"""Registration over HTTP, the device's other HTTP requests, and every invalid form of both."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import AsyncIterator
from typing import Any

import pymysql
import pytest
import sqlalchemy as sa

from tests.manual_clock import ManualClock
from tests.network.registration_scene import OPEN
from tests.network.support import (
    ALICE,
    BOB,
    REGISTRATION_KEY,
    Network,
    reason,
    registration,
)
from tidings.storage.database import Connection, Database
from tidings.storage.network import prekeys
from tidings.wire import device


@pytest.fixture(params=[("tcp", "mariadb"), ("tcp", "sqlite")], ids=["mariadb", "sqlite"])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


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


async def test_a_code_is_invalid_after_five_wrong_guesses(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    await network.start()
    code = await sent_code(network, caplog)
    wrong = "000000" if code != "000000" else "111111"
    for _ in range(5):
        response = await network.request("POST", "/v1/registrations", {**registration(ALICE), "code": wrong})
        assert reason(response) == (401, "wrong_code")
    response = await network.request("POST", "/v1/registrations", {**registration(ALICE), "code": code})
    assert reason(response) == (401, "wrong_code")


async def test_codes_and_wrong_guesses_are_limited_per_address_without_the_key(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    await network.start(clock=clock, unauthenticated=OPEN)
    code = await sent_code(network, caplog)
    for i in range(1, 20):
        assert (await network.request("POST", "/v1/codes", {"number": f"1555030{i:04}"}))[0] == 202
    async with network.http.post("/v1/codes", json={"number": BOB}) as response:
        assert response.status == 429
        assert int(response.headers["Retry-After"]) == pytest.approx(30, abs=1)
    body = registration(ALICE)
    for _ in range(10):
        tried = await network.request("POST", "/v1/registrations", {**body, "number": BOB, "code": "000000"})
        assert reason(tried) == (401, "wrong_code")
    # The right code is refused too: otherwise the response would confirm a guess.
    right = {**body, "code": code}
    assert reason(await network.request("POST", "/v1/registrations", right)) == (429, "rate_limited")
    await network.register(BOB)
    clock.advance(60)
    assert (await network.request("POST", "/v1/registrations", right))[0] == 201
    assert (await network.request("POST", "/v1/codes", {"number": BOB}))[0] == 202


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


async def test_a_client_that_offers_http_2_is_served_over_http_1(network: Network) -> None:
    await network.start()
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQAAP__"}
    for number in ("15550300001", "15550300002"):
        async with network.http.post("/v1/codes", json={"number": number}, headers=headers) as response:
            assert (response.status, (await response.json())["number"]) == (202, number)


async def test_codes_for_one_number_are_rate_limited(network: Network) -> None:
    clock = ManualClock()
    await network.start(clock=clock)
    for _ in range(5):
        assert (await network.request("POST", "/v1/codes", {"number": ALICE}))[0] == 202
        assert reason(await network.request("POST", "/v1/codes", {"number": ALICE})) == (429, "rate_limited")
        clock.advance(31)
    async with network.http.post("/v1/codes", json={"number": ALICE}) as response:
        assert response.status == 429
        assert 3000 < int(response.headers["Retry-After"]) <= 3600
    assert (await network.request("POST", "/v1/codes", {"number": BOB}))[0] == 202
    clock.advance(3600)
    assert (await network.request("POST", "/v1/codes", {"number": ALICE}))[0] == 202


async def test_only_the_registration_key_registers_without_a_code(network: Network) -> None:
    await network.start()
    for token in ("", "wrong", REGISTRATION_KEY + "x", "schlüssel"):
        for path, body in (
            ("/v1/registrations", registration(ALICE)),
            ("/v1/registrations/bulk", {"registrations": [registration(ALICE)]}),
        ):
            assert reason(await network.request("POST", path, body, token=token)) == (401, "unauthorized")
    status, response = await network.request("POST", "/v1/registrations", registration(ALICE), token=REGISTRATION_KEY)
    assert (status, response["number"]) == (201, ALICE)
    assert len(response["token"]) >= 43


async def test_a_bulk_of_500_numbers_is_accepted_and_501_refused(network: Network) -> None:
    await network.start()
    bodies = [registration(f"1555030{i:04}", prekeys=3, kyber=False) for i in range(501)]
    response = await network.request(
        "POST", "/v1/registrations/bulk", {"registrations": bodies}, token=REGISTRATION_KEY
    )
    assert reason(response) == (400, "invalid")
    status, body = await network.request(
        "POST", "/v1/registrations/bulk", {"registrations": bodies[:500]}, token=REGISTRATION_KEY
    )
    assert status == 201
    assert [entry["number"] for entry in body["registrations"]] == [entry["number"] for entry in bodies[:500]]
    assert len({entry["token"] for entry in body["registrations"]}) == 500


async def test_a_bulk_with_a_repeated_number_or_an_invalid_key_registers_nothing(network: Network) -> None:
    await network.start()
    twice = {"registrations": [registration(ALICE), registration(ALICE)]}
    bad = {"registrations": [registration(ALICE), {**registration(BOB), "identity_key": "AAAA"}]}
    for bulk in (twice, bad):
        response = await network.request("POST", "/v1/registrations/bulk", bulk, token=REGISTRATION_KEY)
        assert reason(response) == (400, "invalid")
    assert (await network.request("GET", f"/v1/keys/{ALICE}", token="any"))[0] == 401


async def test_an_unregistered_device_is_unknown_to_all_requests(network: Network) -> None:
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
    assert (await alice.request(lambda n: device.Check(n, ALICE, [BOB]))).registered == []
    assert (await alice.request(lambda n: device.Fetch(n, ALICE, [BOB]))).bundles == []
    assert reason(await network.request("GET", f"/v1/keys/{BOB}", token=token)) == (401, "unauthorized")
    assert reason(await network.request("DELETE", path, token=network.tokens[ALICE])) == (401, "unauthorized")
    assert reason(await network.request("DELETE", path)) == (401, "unauthorized")


async def test_an_unregistration_may_be_repeated_until_the_number_is_registered_again(network: Network) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    path, token = f"/v1/registrations/{BOB}", network.tokens[BOB]
    for _ in range(3):
        assert await network.request("DELETE", path, token=token) == (200, {"number": BOB, "registered": False})
    await network.register(BOB)
    assert reason(await network.request("DELETE", path, token=token)) == (401, "unauthorized")
    assert (await network.request("GET", f"/v1/keys/{BOB}", token=network.tokens[BOB]))[1]["prekeys"] == 25


@pytest.mark.parametrize(
    ("method", "path", "data", "expected"),
    [
        ("POST", "/v1/codes", b"{", (400, "malformed_json")),
        ("POST", "/v1/codes", b"", (400, "malformed_json")),
        ("POST", "/v1/codes", b"\xff\xfe", (400, "malformed_json")),
        ("POST", "/v1/codes", b'{"number": "\xff"}', (400, "malformed_json")),
        ("POST", "/v1/codes", b'{"x":' + b"[" * 3_900, (400, "malformed_json")),
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
async def test_an_invalid_request_gets_the_documented_status_and_reason(
    network: Network, method: str, path: str, data: bytes, expected: tuple[int, str]
) -> None:
    await network.start()
    await network.register(ALICE)
    response = await network.request(method, path, token=network.tokens[ALICE], data=data)
    assert reason(response) == expected


@pytest.mark.one_node
async def test_health_and_metrics_report_connected_devices(network: Network) -> None:
    await network.start()
    await network.register(ALICE)
    await network.connect(ALICE)
    status, body = await network.request("GET", "/health")
    assert (status, body["status"], body["database"], body["devices_online"]) == (200, "ok", "ok", 1)
    async with network.http.get("/metrics") as response:
        text = await response.text()
    assert "tidings_network_connections 1.0" in text
    assert "tidings_network_envelopes_total" in text


async def test_repeating_a_registration_changes_nothing_and_needs_no_other_proof(network: Network) -> None:
    await network.start()
    body = registration(ALICE) | {"token": "t" * 43}
    path = "/v1/registrations"
    assert (await network.request("POST", path, body))[0] == 401
    status, response = await network.request("POST", path, body, token=REGISTRATION_KEY)
    assert (status, response["token"]) == (201, body["token"])
    alice = await network.connect()
    await alice.login(ALICE, body["token"])
    await network.register(BOB)
    bob = await network.connect(BOB)
    await bob.request(functools.partial(device.Fetch, number=BOB, numbers=[ALICE]))
    # A one-time pre-key was handed out: it must not be offered again.
    assert (await network.request("POST", path, body))[0] == 201
    assert (await network.request("GET", f"/v1/keys/{ALICE}", token=body["token"]))[1]["prekeys"] == 24
    await alice.nothing_came()
    # Other keys, or another token, make it another registration.
    for other in (registration(ALICE) | {"token": body["token"]}, body | {"token": "u" * 43}):
        assert (await network.request("POST", path, other))[0] == 401
    assert (await network.request("POST", path, body | {"token": "t" * 42}))[0] == 400


async def test_repeating_a_bulk_registration_changes_nothing(network: Network) -> None:
    await network.start()
    bodies = [registration(number) | {"token": letter * 43} for number, letter in ((ALICE, "a"), (BOB, "b"))]
    for _ in range(2):
        status, response = await network.request(
            "POST", "/v1/registrations/bulk", {"registrations": bodies}, token=REGISTRATION_KEY
        )
        assert status == 201
        assert [entry["token"] for entry in response["registrations"]] == ["a" * 43, "b" * 43]
    client = await network.connect()
    await client.login(ALICE, "a" * 43)


@pytest.fixture
def lost_commit(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """List to which a test adds n: the n-th change of a registration from now on commits with an unknown outcome."""
    left: list[int] = []
    persist = Database.persist

    async def lossy(self: Database, work: Any, **options: Any) -> Any:
        result = await persist(self, work, **options)
        if left and options.get("retry_seconds") == 20:
            left[0] -= 1
            if not left[0]:
                left.clear()
                raise sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))
        return result

    monkeypatch.setattr(Database, "persist", lossy)
    return left


def expelled(network: Network) -> str:
    """Return why a device, attached to the first node, is detached after a change of unknown outcome at the last."""
    return device.OVERLOADED if len(network.nodes) == 1 else device.REPLACED


async def test_a_repeated_registration_ends_the_former_login(network: Network, lost_commit: list[int]) -> None:
    await network.start()
    await network.register(ALICE)
    former = await network.connect(ALICE)
    body = registration(ALICE) | {"token": "t" * 43}
    lost_commit.append(1)
    assert (await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY))[0] == 503
    # The device logs in again, and its token is refused.
    assert (await former.next(device.Closing)).reason == expelled(network)
    assert (await network.request("POST", "/v1/registrations", body, token=REGISTRATION_KEY))[0] == 201


async def test_a_registration_that_is_committed_twice_stores_its_one_time_keys_once(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    await network.start()
    transaction = Database.transaction
    taken: list[str] = []

    @contextlib.asynccontextmanager
    async def lossy(self: Database, **options: Any) -> AsyncIterator[Connection]:
        async with transaction(self, **options) as connection:
            yield connection
        if taken:
            return
        async with transaction(self) as connection:
            # Another device fetches the keys before the response to the commit is missed.
            taken.extend((await prekeys.take_one_each(connection, [ALICE]))[0])
        if taken:
            raise sa.exc.OperationalError("COMMIT", {}, pymysql.err.OperationalError(2013, "Lost connection"))

    monkeypatch.setattr(Database, "transaction", lossy)
    await network.register(ALICE)
    assert taken == [ALICE]
    path, token = f"/v1/keys/{ALICE}", network.tokens[ALICE]
    assert (await network.request("GET", path, token=token))[1]["prekey_ids"] == [*range(2, 26)]


async def test_an_unregistration_of_unknown_outcome_takes_effect(network: Network, lost_commit: list[int]) -> None:
    await network.start()
    await network.register(ALICE, BOB)
    alice, bob = await network.connect(ALICE), await network.connect(BOB)
    # The first change leaves the groups.
    lost_commit.append(2)
    path, token = f"/v1/registrations/{ALICE}", network.tokens[ALICE]
    assert (await network.request("DELETE", path, token=token))[0] == 503
    assert (await alice.next(device.Closing)).reason == expelled(network)
    assert (await network.request("GET", f"/v1/keys/{ALICE}", token=token))[0] == 401
    assert (await network.request("DELETE", path, token=token))[0] == 200
    bob.send(BOB, ALICE, "after")
    refused = await bob.next(device.Refused)
    assert refused.reason == device.NO_SUCH_NUMBER
