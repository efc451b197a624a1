"""Takeover of numbers by guessing, and attempts to keep others from registering.

The limits are literals from docs/security.md and docs/device-api.md. A test that read them from the product could not
detect that a limit was loosened.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from prometheus_client import REGISTRY

from network.devices.codes import Codes
from network.devices.familiar_addresses import FamiliarAddresses
from network.devices.locks import LockActivity, Locks
from network.directory.seen_devices import SeenDevices
from network.errors import Locked, RateLimited, Unauthorized, Unavailable
from network.settings import DeviceRateLimits
from tests.conftest import DatabaseFactory
from tests.manual_clock import ManualClock
from tests.network.registration_scene import DAY, PIN, WRONG_PIN, Scene, other_than
from tests.network.support import ALICE, BOB, REGISTRATION_KEY, TIMEOUT, Network, reason, registration
from tidings.aio.clock import SystemClock
from tidings.secrets.hash_pool import HashPool
from tidings.storage.database import Connection, Database, DatabaseError
from tidings.storage.network import challenges
from tidings.wire import device

BUSINESS = "15550009999"


@pytest.fixture(params=[("tcp", "mariadb"), ("tcp", "sqlite")], ids=["mariadb", "sqlite"])
def pair(request: pytest.FixtureRequest) -> tuple[str, str]:
    transport, database = request.param
    return transport, database


@pytest.fixture
def scene(network: Network, caplog: pytest.LogCaptureFixture) -> Scene:
    return Scene(network, caplog)


def count_tries(result: str, *, digits: int = 6) -> float:
    """Return the number of codes of this length that were compared with this result."""
    labels = {"digits": str(digits), "result": result}
    return REGISTRY.get_sample_value("tidings_network_code_tries_total", labels) or 0.0


def count_delayed() -> float:
    """Return the number of requests that waited for the rate limit of unauthenticated clients."""
    return REGISTRY.get_sample_value("tidings_unauthenticated_requests_delayed_total") or 0.0


async def assert_pins_left(locks: Locks, count: int) -> None:
    """Assert that exactly `count` further PINs for Alice's number are checked. All of them are wrong."""
    for _ in range(count):
        with pytest.raises(Unauthorized):
            await locks.open(ALICE, WRONG_PIN, "192.0.2.1")
    with pytest.raises(RateLimited):
        await locks.open(ALICE, PIN, "192.0.2.1")


async def test_a_business_number_registers_only_with_the_registration_key(scene: Scene) -> None:
    await scene.start(rate_limits=DeviceRateLimits(businesses=frozenset({BUSINESS})))
    refused = await scene.post("127.0.0.2", "/v1/codes", {"number": BUSINESS})
    assert reason(refused) == (403, "key_required")
    assert (await scene.register("127.0.0.1", BUSINESS, key=REGISTRATION_KEY))[0] == 201
    code = await scene.code("127.0.0.1", BUSINESS, token=REGISTRATION_KEY)
    assert reason(await scene.register("127.0.0.1", BUSINESS, code=code)) == (403, "key_required")
    assert reason(await scene.register("127.0.0.1", BUSINESS, code=code, key="wrong")) == (401, "unauthorized")
    token = scene.network.tokens[BUSINESS]
    assert (await scene.network.request("GET", f"/v1/keys/{BUSINESS}", token=token))[0] == 200
    assert (await scene.register("127.0.0.1", BUSINESS, code=code, key=REGISTRATION_KEY))[0] == 201
    taken = await scene.register("127.0.0.1", BUSINESS, key=REGISTRATION_KEY, person=True)
    assert reason(taken) == (403, "key_required")
    assert (await scene.network.request("GET", f"/v1/keys/{BUSINESS}", token=scene.network.tokens[BUSINESS]))[0] == 200
    assert (await scene.register("127.0.0.1", ALICE, key=REGISTRATION_KEY, person=True))[0] == 201


async def test_a_locked_number_requires_its_pin_besides_the_code(scene: Scene) -> None:
    await scene.start()
    assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1"), pin=PIN))[0] == 201
    scene.clock.advance(31)
    code = await scene.code("127.0.0.2")
    assert reason(await scene.register("127.0.0.2", code=code)) == (423, "locked")
    assert reason(await scene.register("127.0.0.2", code=code, pin=WRONG_PIN)) == (401, "wrong_pin")
    token = scene.network.tokens[ALICE]
    assert (await scene.network.request("GET", f"/v1/keys/{ALICE}", token=token))[0] == 200
    assert (await scene.register("127.0.0.2", code=code, pin=PIN))[0] == 201
    assert (await scene.network.request("GET", f"/v1/keys/{ALICE}", token=token))[0] == 401
    # The code was used already.
    assert reason(await scene.register("127.0.0.2", code=code, pin=PIN)) == (401, "wrong_code")


async def test_a_wrong_code_does_not_reveal_a_lock(scene: Scene) -> None:
    await scene.start()
    assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1"), pin=PIN))[0] == 201
    wrong = other_than(await scene.code("127.0.0.2"))
    for fields in ({}, {"pin": PIN}, {"pin": WRONG_PIN}):
        assert reason(await scene.register("127.0.0.2", code=wrong, **fields)) == (401, "wrong_code")


async def test_the_registration_key_overrides_a_lock_and_can_set_one(scene: Scene) -> None:
    await scene.start()
    assert (await scene.register("127.0.0.1", key=REGISTRATION_KEY, pin=PIN))[0] == 201
    assert reason(await scene.register("127.0.0.2", code=await scene.code("127.0.0.2"))) == (423, "locked")
    # The operator registers the number for an owner who has forgotten the PIN. The lock stays.
    assert (await scene.register("127.0.0.1", key=REGISTRATION_KEY))[0] == 201
    assert reason(await scene.register("127.0.0.3", code=await scene.code("127.0.0.3"))) == (423, "locked")


async def test_a_device_changes_and_removes_its_lock(scene: Scene) -> None:
    await scene.start()
    assert (await scene.register("127.0.0.1", key=REGISTRATION_KEY))[0] == 201
    token = scene.network.tokens[ALICE]
    path = f"/v1/locks/{ALICE}"
    assert reason(await scene.network.request("PUT", path, {"pin": PIN}, token="wrong")) == (401, "unauthorized")
    assert await scene.network.request("PUT", path, {"pin": PIN}, token=token) == (
        200,
        {"number": ALICE, "locked": True},
    )
    assert reason(await scene.register("127.0.0.2", code=await scene.code("127.0.0.2"))) == (423, "locked")
    assert await scene.network.request("DELETE", path, token=token) == (200, {"number": ALICE, "locked": False})
    assert (await scene.register("127.0.0.3", code=await scene.code("127.0.0.3")))[0] == 201


async def test_a_lock_expires_after_seven_days_without_the_device(scene: Scene) -> None:
    await scene.start()
    assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1"), pin=PIN))[0] == 201
    scene.clock.advance(7 * DAY - 60)
    assert reason(await scene.register("127.0.0.2", code=await scene.code("127.0.0.2"))) == (423, "locked")
    scene.clock.advance(120)
    assert (await scene.register("127.0.0.2", code=await scene.code("127.0.0.2")))[0] == 201
    # The next owner has set no PIN.
    scene.clock.advance(120)
    assert (await scene.register("127.0.0.3", code=await scene.code("127.0.0.3")))[0] == 201


async def test_a_login_extends_the_lock_by_seven_days(scene: Scene) -> None:
    await scene.start()
    assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1"), pin=PIN))[0] == 201
    scene.clock.advance(6 * DAY)
    await scene.network.request("GET", f"/v1/keys/{ALICE}", token=scene.network.tokens[ALICE])
    await scene.network.stop()
    await scene.start()
    scene.clock.advance(6 * DAY)
    assert reason(await scene.register("127.0.0.2", code=await scene.code("127.0.0.2"))) == (423, "locked")


async def test_an_attached_device_keeps_its_lock(scene: Scene) -> None:
    database = Database(scene.network.database, "network")
    try:
        attached: dict[str, set[str]] = {}
        addresses = FamiliarAddresses(database, "key")
        checked = Locks(database, scene.clock, addresses)
        activity = LockActivity(database, scene.clock, addresses, SeenDevices(), origins_of=attached.get)
        await checked.set(ALICE, PIN)
        attached[ALICE] = set()
        for _ in range(20):
            scene.clock.advance(DAY)
            assert await activity.run_once() == 1
        attached.clear()
        scene.clock.advance(7 * DAY - 1)
        assert await activity.run_once() == 0
        with pytest.raises(Locked):
            await checked.open(ALICE, "", "127.0.0.1")
        scene.clock.advance(1)
        assert await checked.open(ALICE, "", "127.0.0.1") == ""
    finally:
        await database.close()


@pytest.mark.parametrize("pin", ["12345", "1" * 21, "12345a", "१२३४५६", " 123456"])
async def test_a_pin_is_6_to_20_digits(scene: Scene, pin: str) -> None:
    await scene.start()
    assert reason(await scene.register("127.0.0.1", key=REGISTRATION_KEY, pin=pin)) == (400, "invalid")


async def test_five_wrong_pins_of_others_delay_an_owner_at_an_unfamiliar_address_by_a_day(scene: Scene) -> None:
    await scene.start()
    assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1"), pin=PIN))[0] == 201
    code = await scene.code("127.0.0.9")
    for _ in range(5):
        assert reason(await scene.register("127.0.0.9", code=code, pin=WRONG_PIN)) == (401, "wrong_pin")
    # The right code is refused too: otherwise the response would confirm a guess.
    own = await scene.code("127.0.0.8")
    assert reason(await scene.register("127.0.0.8", code=own, pin=PIN)) == (429, "rate_limited")
    await scene.network.stop()
    await scene.start()
    assert reason(await scene.register("127.0.0.8", code=own, pin=PIN)) == (429, "rate_limited")
    scene.clock.advance(DAY)
    assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1"), pin=PIN))[0] == 201


async def test_a_device_sets_five_pins_at_once_and_then_one_a_minute(scene: Scene) -> None:
    await scene.start()
    assert (await scene.register("127.0.0.1", key=REGISTRATION_KEY))[0] == 201
    token, path = scene.network.tokens[ALICE], f"/v1/locks/{ALICE}"
    for n in range(5):
        assert (await scene.network.request("PUT", path, {"pin": f"24681{n}"}, token=token))[0] == 200
    refused = await scene.network.request("PUT", path, {"pin": PIN}, token=token)
    assert reason(refused) == (429, "too_often")
    scene.clock.advance(59)
    assert (await scene.network.request("PUT", path, {"pin": PIN}, token=token))[0] == 429
    scene.clock.advance(1)
    assert (await scene.network.request("PUT", path, {"pin": PIN}, token=token))[0] == 200
    assert (await scene.network.request("PUT", path, {"pin": PIN}, token=token))[0] == 429


async def test_concurrent_pin_checks_are_bounded(scene: Scene) -> None:
    database = Database(scene.network.database, "network")
    try:
        checked = Locks(database, scene.clock, FamiliarAddresses(database, "key"))
        hashes = await asyncio.gather(*(checked.hash(PIN) for _ in range(100)), return_exceptions=True)
        assert sum(isinstance(found, str) for found in hashes) == 33
        assert all(isinstance(found, str | Unavailable) for found in hashes)
    finally:
        await database.close()


async def test_guesses_from_other_addresses_do_not_prevent_an_owners_registration(scene: Scene) -> None:
    await scene.start()
    own = await scene.code("127.0.0.1")
    for last in range(2, 12):
        host = f"127.0.1.{last}"
        wrong = other_than(await scene.code(host))
        assert reason(await scene.register(host, code=wrong)) == (401, "wrong_code")
    # The owner's code with six digits stays valid. The next codes are longer.
    later = await scene.code("127.0.0.2")
    assert (len(own), len(later)) == (6, 16)
    assert (await scene.register("127.0.0.1", code=own))[0] == 201
    assert (await scene.register("127.0.0.2", code=later))[0] == 201


async def test_an_owner_who_mistypes_during_an_attack_gets_a_longer_code(scene: Scene) -> None:
    await scene.start()
    own = await scene.code("127.0.0.1")
    for last in range(2, 12):
        host = f"127.0.1.{last}"
        assert reason(await scene.register(host, code=other_than(await scene.code(host)))) == (401, "wrong_code")
    # Only the first try of a code is reserved.
    assert reason(await scene.register("127.0.0.1", code=other_than(own))) == (401, "wrong_code")
    assert reason(await scene.register("127.0.0.1", code=own)) == (401, "wrong_code")
    scene.clock.advance(31)
    longer = await scene.code("127.0.0.1")
    assert len(longer) == 16
    assert (await scene.register("127.0.0.1", code=longer))[0] == 201


async def test_codes_requested_in_advance_allow_no_more_than_ten_wrong_guesses(scene: Scene) -> None:
    database = Database(scene.network.database, "network")
    try:
        nodes = Codes(database, "key", scene.clock), Codes(database, "key", scene.clock)
        before = count_tries("wrong")
        for n in range(30):
            await nodes[n % 2].issue(ALICE, f"127.0.2.{n}")
        for n in [*range(30), *range(30)]:
            with contextlib.suppress(Unauthorized):
                await nodes[n % 2].check(ALICE, f"127.0.2.{n}", "x")
        assert count_tries("wrong") - before == 10
        # Untried codes reserve nothing once they have expired.
        scene.clock.advance(10 * DAY)
        for n in range(10):
            await nodes[0].issue(ALICE, f"127.0.3.{n}")
        scene.clock.advance(601)
        await nodes[1].issue(ALICE, "127.0.4.1")
        await nodes[1].issue(ALICE, "127.0.4.2")
        with contextlib.suppress(Unauthorized):
            await nodes[1].check(ALICE, "127.0.4.1", "x")
        assert count_tries("wrong") - before == 11
    finally:
        await database.close()


@pytest.mark.parametrize("pair", [("tcp", "sqlite")])
async def test_at_most_16_codes_a_second_are_tried_at_one_node(network: Network) -> None:
    clock, loop = SystemClock(), asyncio.get_running_loop()
    await network.start()
    hosts = [f"127.0.4.{last}" for last in range(1, 81)]
    database = Database(network.database, "network")
    try:
        codes = Codes(database, REGISTRATION_KEY, clock)
        # Ten wrong guesses make further codes long.
        for n in range(10):
            await codes.issue(ALICE, str(n))
            with contextlib.suppress(Unauthorized):
                await codes.check(ALICE, str(n), "x")
        for host in hosts:
            await codes.issue(ALICE, host)
    finally:
        await database.close()
    before = count_tries("wrong", digits=16)
    body = {**registration(ALICE, prekeys=0, kyber=False), "code": "0" * 16}
    start, responses, last = loop.time(), 0, 0.0

    async def guess(host: str) -> None:
        nonlocal responses, last
        url = f"http://127.0.0.1:{network.nodes[-1].addresses.http[1]}"
        async with aiohttp.ClientSession(url, connector=aiohttp.TCPConnector(local_addr=(host, 0))) as http:
            for _ in range(5):
                async with http.post("/v1/registrations", json=body) as response:
                    assert response.status in (401, 429)
                    responses += response.status == 401
                    last = loop.time()

    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.gather(*map(guess, hosts))
    # 16 a second, and 64 at once. 400 tries were made.
    assert 64 <= responses <= 64 + 16 * (last - start)
    assert count_tries("wrong", digits=16) - before <= 64 + 16 * (loop.time() - start)


async def test_a_request_for_a_code_costs_an_unauthenticated_client_four_tokens_of_64(scene: Scene) -> None:
    await scene.network.start(clock=scene.clock)
    before = count_delayed()
    for n in range(16):
        assert (await scene.post("127.0.0.2", "/v1/codes", {"number": f"1555030{n:04}"}))[0] == 202
    assert count_delayed() == before
    assert (await scene.post("127.0.0.3", "/v1/codes", {"number": ALICE}))[0] == 202
    assert count_delayed() == before + 1


async def test_a_wrong_code_costs_an_unauthenticated_client_four_tokens_of_64(scene: Scene) -> None:
    await scene.network.start(clock=scene.clock)
    before = count_delayed()
    for n in range(16):
        assert reason(await scene.register(f"127.0.0.{2 + n % 2}", code="000000")) == (401, "wrong_code")
    assert count_delayed() == before
    assert reason(await scene.register("127.0.0.4", code="000000")) == (401, "wrong_code")
    assert count_delayed() == before + 1


async def test_a_registration_by_code_refunds_its_tokens(scene: Scene) -> None:
    await scene.network.start(clock=scene.clock)
    before = count_delayed()
    for n in range(12):
        number = f"1555030{n:04}"
        code = await scene.code("127.0.0.2", number)
        assert (await scene.register("127.0.0.2", number, code=code))[0] == 201
    assert count_delayed() == before


async def test_codes_requested_with_the_registration_key_stay_short(scene: Scene) -> None:
    await scene.start()
    for last in range(2, 12):
        host = f"127.0.1.{last}"
        assert reason(await scene.register(host, code=other_than(await scene.code(host)))) == (401, "wrong_code")
    assert len(await scene.code("127.0.0.1")) == 16
    code = await scene.code("127.0.0.1", token=REGISTRATION_KEY)
    assert len(code) == 6
    assert (await scene.register("127.0.0.9", code=code, key=REGISTRATION_KEY))[0] == 201


async def test_a_code_is_issued_when_the_outcome_of_its_commit_is_unknown(
    database_factory: DatabaseFactory, lost_commit: list[bool], caplog: pytest.LogCaptureFixture
) -> None:
    codes = Codes(await database_factory("network"), REGISTRATION_KEY, ManualClock())
    lost_commit.append(True)
    with caplog.at_level(logging.INFO):
        await codes.issue(ALICE, "192.0.2.1")
    assert not lost_commit
    (code,) = [record.__dict__["code"] for record in caplog.records if record.message == "code.issued"]
    await codes.check(ALICE, "192.0.2.1", code)


async def test_a_wrong_code_counts_once_when_the_outcome_of_its_commit_is_unknown(
    database_factory: DatabaseFactory, lost_commit: list[bool]
) -> None:
    database = await database_factory("network")
    codes = Codes(database, REGISTRATION_KEY, SystemClock())
    await codes.issue(ALICE, "192.0.2.1")
    lost_commit.append(True)
    with pytest.raises(DatabaseError):
        await codes.check(ALICE, "192.0.2.1", "none")
    assert not lost_commit
    async with database.reading() as connection:
        found = await challenges.find(connection, ALICE, "192.0.2.1")
    assert found is not None
    assert found.attempts_left == 4


async def test_a_pin_counts_once_when_the_outcome_of_its_commit_is_unknown(
    database_factory: DatabaseFactory, lost_commit: list[bool]
) -> None:
    database, clock = await database_factory("network"), ManualClock()
    locks = Locks(database, clock, FamiliarAddresses(database, "key"))
    await locks.set(ALICE, PIN)
    lost_commit.append(True)
    with pytest.raises(DatabaseError):
        await locks.open(ALICE, WRONG_PIN, "192.0.2.1")
    assert not lost_commit
    await assert_pins_left(locks, 4)


@pytest.mark.parametrize("outcome", ["not begun", "unknown"])
async def test_a_right_pin_is_refunded_once_by_a_database_that_was_away(
    database_factory: DatabaseFactory, lost_commit: list[bool], monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    database, clock = await database_factory("network"), ManualClock()
    locks = Locks(database, clock, FamiliarAddresses(database, "key"))
    await locks.set(ALICE, PIN)
    with pytest.raises(Unauthorized):
        await locks.open(ALICE, WRONG_PIN, "192.0.2.1")
    verify, transaction, away = HashPool.verify, Database.transaction, list[bool]()

    async def lose_the_refund(pool: HashPool, stored: str, pin: str) -> bool:
        (lost_commit if outcome == "unknown" else away).append(True)
        return await verify(pool, stored, pin)

    @contextlib.asynccontextmanager
    async def refuse(self: Database, **options: Any) -> AsyncIterator[Connection]:
        if away:
            away.clear()
            raise ConnectionError("played")
        async with transaction(self, **options) as connection:
            yield connection

    monkeypatch.setattr(HashPool, "verify", lose_the_refund)
    monkeypatch.setattr(Database, "transaction", refuse)
    assert await locks.open(ALICE, PIN, "192.0.2.1")
    monkeypatch.setattr(HashPool, "verify", verify)
    assert not away
    assert not lost_commit
    await assert_pins_left(locks, 4)


async def test_a_right_pin_is_refunded_although_the_request_has_ended(
    database_factory: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await database_factory("network")
    locks = Locks(database, ManualClock(), FamiliarAddresses(database, "key"))
    await locks.set(ALICE, PIN)
    persist, begun, back = Database.persist, asyncio.Event(), asyncio.Event()

    async def wait_then_persist(self: Database, *arguments: Any, **options: Any) -> Any:
        begun.set()
        await back.wait()
        return await persist(self, *arguments, **options)

    monkeypatch.setattr(Database, "persist", wait_then_persist)
    opening = asyncio.create_task(locks.open(ALICE, PIN, "192.0.2.1"))
    async with asyncio.timeout(TIMEOUT):
        await begun.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    (refund,) = [task for task in asyncio.all_tasks() if task.get_name() == "refund"]
    back.set()
    await refund
    await assert_pins_left(locks, 5)


async def test_a_code_works_only_from_the_address_that_requested_it(scene: Scene) -> None:
    await scene.start()
    code = await scene.code("127.0.0.1")
    assert reason(await scene.register("127.0.0.2", code=code)) == (401, "wrong_code")
    assert (await scene.register("127.0.0.1", code=code))[0] == 201


async def test_a_number_without_a_lock_allows_ten_wrong_guesses_and_then_one_a_day(scene: Scene) -> None:
    database = Database(scene.network.database, "network")
    try:
        nodes = Codes(database, "key", scene.clock), Codes(database, "key", scene.clock)
        before = count_tries("wrong")
        for day in range(20):
            for guess in range(12 if not day else 3):
                # Each guess comes from its own address. A guess of six digits is right once in a million.
                await nodes[guess % 2].issue(ALICE, f"{day} {guess}")
                with contextlib.suppress(Unauthorized):
                    await nodes[day % 2].check(ALICE, f"{day} {guess}", "x")
            scene.clock.advance(DAY)
        # 10 + 365 guesses a year: one of them succeeds with a probability of 375 in a million.
        assert count_tries("wrong") - before == 10 + 19
    finally:
        await database.close()


async def test_exhausted_limits_of_some_addresses_do_not_affect_others(scene: Scene) -> None:
    await scene.start()
    responses: dict[int, int] = {}
    for host in range(1, 7):
        for number in range(22):
            status, _ = await scene.post(f"127.0.2.{host}", "/v1/codes", {"number": f"1555{host:03}{number:04}"})
            responses[status] = responses.get(status, 0) + 1
    for host in range(1, 22):
        for number in range(11):
            status, _ = await scene.register(f"127.0.3.{host}", f"1556{host:03}{number:04}", code="000000")
            responses[status] = responses.get(status, 0) + 1
    # 20 codes and 10 wrong attempts per address. A limit of 100 and 200 for all addresses together would lock everyone
    # out.
    assert responses == {202: 6 * 20, 401: 21 * 10, 429: 6 * 2 + 21}
    code = await scene.code("127.0.0.1")
    assert (await scene.register("127.0.0.1", code=code))[0] == 201


async def test_a_lock_survives_a_repeated_registration(scene: Scene) -> None:
    await scene.start()
    chosen = "A" * 43
    body = {**registration(ALICE, prekeys=0, kyber=False), "token": chosen, "pin": PIN}
    assert (await scene.post("127.0.0.1", "/v1/registrations", body, token=REGISTRATION_KEY))[0] == 201
    assert (await scene.post("127.0.0.1", "/v1/registrations", body))[0] == 201
    assert reason(await scene.register("127.0.0.2", code=await scene.code("127.0.0.2"))) == (423, "locked")


async def test_a_device_registered_without_a_lock_works_as_before(scene: Scene) -> None:
    await scene.start()
    await scene.network.register(ALICE, BOB)
    alice, bob = await scene.network.connect(ALICE), await scene.network.connect(BOB)
    alice.send(ALICE, BOB, "one")
    await bob.next(device.Deliver)
    assert (await scene.register("127.0.0.1", code=await scene.code("127.0.0.1")))[0] == 201
